"""``python -m tools.python_reference docs/reference/python.md``: update the page about the package from its docstrings.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import sagemaker_queue
from api_contract import history, models, preview, shape
from api_contract.shape import Shape
from sagemaker_queue import QueueClient, QueueError
from sagemaker_queue.jobs.checkpoint_layouts import Checkpoint, CheckpointFile
from sagemaker_queue.jobs.packaging.job_options import JobKeywords
from sagemaker_queue.notebook import client
from sagemaker_queue.notebook.iterators import Jobs, Listing, LogLines, Sweep
from sagemaker_queue.notebook.usage_report import FailureReport, UsageReport
from sagemaker_queue.tuning import space
from sagemaker_queue.tuning.plan import TrialRow
from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine
from sagemaker_queue.workflows.results import Fetched
from sagemaker_queue.workflows.saved_checkpoints import JobCheckpoints
from sagemaker_queue.workflows.usage.budgets import RemainingBudget
from sagemaker_queue.workflows.usage.cause_sums import CauseUsage, ProjectCauses
from sagemaker_queue.workflows.usage.failure_sums import FailureSum
from sagemaker_queue.workflows.usage.sums import Usage
from tools.generated_text import update_page, with_sections
from tools.markdown import table

_RETURNED: tuple[Any, ...] = (
    *(Listing, Jobs, Sweep, LogLines, LogLine, Fetched, UsageReport, FailureReport),
    *(JobCheckpoints, Checkpoint, CheckpointFile, TrialRow),
)
_TYPES = (shape, models, history, preview, client, space)
"""The modules with the type aliases that signatures and fields name."""
_SUMS: tuple[Any, ...] = (Usage, CauseUsage, ProjectCauses, RemainingBudget, FailureSum)
"""The classes of sums, which the page names without their fields."""


def reference(page: str) -> str:
    """Return the page with the present docstrings."""
    sections = list(_sections())
    return with_sections(page, [*sections, *_types("\n".join(sections))])


def public() -> dict[str, Any]:
    """Return the exports of the package by name."""
    return {name: getattr(sagemaker_queue, name) for name in sorted(sagemaker_queue.__all__, key=str.lower)}


def _sections() -> Iterator[str]:
    offered = public()
    yield from _about_class(QueueClient)
    yield "### Keywords of a job"
    yield _prose(JobKeywords)
    yield _table("keyword", _fields(JobKeywords))
    yield "## Functions and other classes"
    others = [one for one in offered.values() if not isinstance(one, type)]
    for function in others:
        yield f"### `{function.__name__}`"
        yield _code(function)
        yield _prose(function)
    classes = [one for one in offered.values() if isinstance(one, type) and not issubclass(one, (Shape, QueueError))]
    for kind in classes:
        if kind is not QueueClient:
            yield from _about_class(kind, "###")
    yield "## Returned objects"
    for kind in _RETURNED:
        yield from _about_class(kind, "###")
    shapes = [one for one in offered.values() if isinstance(one, type) and issubclass(one, Shape)]
    for described in shapes:
        yield from _about_class(described, "###")
    yield "## Errors"
    errors = [one for one in offered.values() if isinstance(one, type) and issubclass(one, QueueError)]
    yield _table("error", [(f"`{kind.__name__}`", _kind_of(kind) + _flat(kind)) for kind in errors])


def _types(text: str) -> Iterator[str]:
    """Yield the section about types that ``text`` names in fields and signatures but does not describe."""
    fields = re.findall(r"^\| `\w+`: `([^`]*)`", text, re.MULTILINE)
    signatures = re.findall(r"^```python\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"\b[A-Z]\w+\b", " ".join([*fields, *signatures]))) - set(
        re.findall(r"^#+ `(\w+)`", text, re.MULTILINE)
    )
    yield "## Types"
    yield _table("type", [(f"`{name}`", meaning) for name, meaning in sorted(_meanings()) if name in named])


def _meanings() -> Iterator[tuple[str, str]]:
    yield from ((kind.__name__, _flat(kind)) for kind in _SUMS)
    for module in _TYPES:
        for name, below in _documented_names(module):
            yield name, _cell(below)
        for name, kind in vars(module).items():
            is_object = inspect.isclass(kind) and issubclass(kind, Shape) and not kind.__subclasses__()
            if is_object and kind.__module__ == module.__name__:
                yield name, f"{_flat(kind)} [Its fields](http-api.md#{name.lower()})"


def _documented_names(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the module's names for types, with the text below each definition."""
    for definition, below in pairwise(ast.parse(inspect.getsource(module)).body):
        if (
            isinstance(definition, ast.Assign)
            and isinstance(definition.targets[0], ast.Name)
            and isinstance(definition.value, ast.Subscript)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            yield definition.targets[0].id, str(below.value.value)


def _kind_of(error: type[Exception]) -> str:
    (base,) = error.__bases__
    return "" if base is Exception else f"(`{base.__name__}`) "


def _about_class(kind: Any, heading: str = "##") -> Iterator[str]:
    yield f"{heading} `{kind.__name__}`"
    bases = [base for base in kind.__mro__[1:] if issubclass(base, Shape) and base.__module__ == "api_contract.models"]
    more = (
        [f"It has the fields of `{bases[0].__name__}`, and these:"] if bases and bases[0].__name__ != "Answer" else []
    )
    yield _prose(kind)
    if _is_made_by_users(kind):
        yield _code(kind.__init__, kind.__name__)
    if rows := _fields(kind):
        yield from more
        yield _table("field", rows)
    elif more:
        yield more[0].replace(", and these:", ".")
    for name, member in _methods(kind):
        yield f"{heading}# `{kind.__name__}.{name}`"
        if not isinstance(member, property):
            yield _code(member)
        yield _prose(member.fget if isinstance(member, property) else member)


def _is_made_by_users(kind: Any) -> bool:
    own = inspect.isfunction(kind.__init__) and kind.__init__.__module__.startswith("sagemaker_queue.")
    return own and kind in public().values() and not dataclasses.is_dataclass(kind)


def _methods(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties in the order of the source, then those of base classes in this package."""
    if issubclass(kind, Shape):
        return
    for base in kind.__mro__:
        if base.__module__.startswith("sagemaker_queue."):
            for name, member in vars(base).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    yield from [(name, member)] if getattr(kind, name) is getattr(base, name) else []


def _fields(kind: Any) -> list[tuple[str, str]]:
    """Return a class's own fields, with the strings or comments that describe them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    rows = []
    for field, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        meaning = lines[field.lineno - 1].partition("  # ")[2]
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            meaning = str(below.value.value)
        rows.append((f"`{field.target.id}`: `{_type(field.annotation)}`", _cell(meaning)))
    return rows


def _type(annotation: ast.expr) -> str:
    """Return a type as text, without the facts that ``Annotated`` adds for the OpenAPI document."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        return _type(annotation.slice.elts[0])
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def _code(function: Any, name: str = "") -> str:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    for arguments in (tree.args.posonlyargs, tree.args.args):
        arguments[:] = [one for one in arguments if one.arg not in ("self", "cls")]
    # Show the values of constants instead of their names.
    named = function.__kwdefaults__ or {}
    tree.args.defaults = [ast.Constant(value) for value in function.__defaults__ or ()]
    tree.args.kw_defaults = [ast.Constant(named[one.arg]) if one.arg in named else None for one in tree.args.kwonlyargs]
    returns = f" -> {ast.unparse(tree.returns)}" if tree.returns and not name else ""
    flat = f"{name or tree.name}({ast.unparse(tree.args)}){returns}"
    return f"```python\n{textwrap.fill(flat, 110, subsequent_indent='    ', break_long_words=False)}\n```"


def _prose(documented: Any) -> str:
    """Return a docstring as Markdown: each paragraph on one line, indented text as code."""
    paragraphs = re.split(r"\n\n+", inspect.getdoc(documented) or "")
    return "\n\n".join(part if part.startswith("    ") else _cell(part, table=False) for part in paragraphs)


def _flat(documented: Any) -> str:
    return _cell((inspect.getdoc(documented) or "").partition("\n\n")[0])


def _cell(text: str, *, table: bool = True) -> str:
    """Return text on one line, with Markdown's characters escaped outside of code."""
    lines = re.sub(r"\s*\n- ", "; ", text) if table else text
    parts = " ".join(lines.replace("``", "`").split()).split("`")
    marks = r"([\\*_<|])" if table else r"([\\*_<])"
    return "`".join(part if at % 2 else re.sub(marks, r"\\\1", part) for at, part in enumerate(parts))


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return table([title, ""], [(name.replace("|", "\\|"), meaning) for name, meaning in rows])


if __name__ == "__main__":
    sys.exit(update_page(reference))
