"""``python -m tools.stack_reference docs/reference/stack.md``: update the page about the stack from template.yaml.

In the page, the text above a comment is written by hand, and the text below that comment is generated.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from tools.generated_text import update_page, with_sections
from tools.markdown import table

TEMPLATE = Path(__file__).parents[1] / "template.yaml"

Json = dict[str, Any]


def with_stack(page: str) -> str:
    """Return the page with the present parameters, outputs and resources of the stack."""
    return with_sections(page, stack_sections(yaml_parse(TEMPLATE.read_text())), "template.yaml")


def stack_sections(template: Json) -> Iterator[str]:
    """Return the generated sections of the page in their order."""
    yield "## Parameters"
    interface = template["Metadata"]["AWS::CloudFormation::Interface"]
    for group in interface["ParameterGroups"]:
        yield f"### {group['Label']['default']}"
        for name in group["Parameters"]:
            yield f"#### {name}\n\n{_parameter(template['Parameters'][name])}"
    yield "## Outputs"
    outputs = template["Outputs"].items()
    yield table(["output", "meaning"], [(f"`{name}`", _one_line(one["Description"])) for name, one in outputs])
    yield "## Resources"
    resources = template["Resources"].items()
    rows = [(f"`{name}`", f"`{one['Type']}`", _created(one, template)) for name, one in resources]
    yield table(["resource", "type", "created"], rows)


def _parameter(facts: Json) -> str:
    """Return the description of a parameter, its default and its possible values in Markdown."""
    text = re.sub(r"docs/([\w/-]+/([\w-]+))\.md", r"[\2](../\1.md)", _one_line(facts["Description"]))
    if "AllowedValues" in facts:
        values = ", ".join(f"`{value}`" for value in facts["AllowedValues"])
    else:
        values = _one_line(facts["ConstraintDescription"]).removeprefix("must be ")
    if "Default" not in facts:
        default = "Required."
    else:
        default = f"Default: `{facts['Default']}`." if facts["Default"] else "Default: empty."
    return f"{text}\n\n{default} Value: {values}."


def _created(resource: Json, template: Json) -> str:
    """Return when the stack creates a resource: always, or with the parameters of its condition."""
    condition = resource.get("Condition")
    if condition is None:
        return "always"
    return "with " + " and ".join(f"`{name}`" for name in _parameters_of(template["Conditions"][condition], template))


def _parameters_of(condition: Any, template: Json) -> list[str]:
    """Return the names of the parameters on which a condition depends."""
    if isinstance(condition, list):
        return [name for one in condition for name in _parameters_of(one, template)]
    if not isinstance(condition, dict):
        return []
    if "Ref" in condition:
        return [condition["Ref"]]
    if isinstance(named := condition.get("Condition"), str):
        return _parameters_of(template["Conditions"][named], template)
    return [name for one in condition.values() for name in _parameters_of(one, template)]


def _one_line(text: str) -> str:
    """Return text in one line, with the characters escaped that Markdown would interpret."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    sys.exit(update_page(with_stack))
