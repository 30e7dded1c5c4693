"""``python -m tools.stack_reference docs/reference/stack.md``: update the page about the stacks from their templates.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from tools.generated_text import update_page, with_sections
from tools.markdown import table

ROOT = Path(__file__).parents[1]
TEMPLATE, SATELLITE = ROOT / "template.yaml", ROOT / "satellite.yaml"

Json = dict[str, Any]


def with_stack(page: str) -> str:
    """Return the page with the present parameters, outputs and resources of the stack, and of a satellite."""
    stack, satellite = (yaml_parse(path.read_text()) for path in (TEMPLATE, SATELLITE))
    return with_sections(page, [*stack_sections(stack), *satellite_sections(satellite)], "template.yaml")


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


def satellite_sections(template: Json) -> Iterator[str]:
    """Return the generated sections about the stack of another region or account."""
    yield "## A satellite: another region or account"
    yield "The stack made from `satellite.yaml` has these parameters and outputs ([regions](../operate/regions.md))."
    rows = [(f"`{name}`", _default(one), _one_line(one["Description"])) for name, one in template["Parameters"].items()]
    yield table(["parameter", "default", "meaning"], rows)
    outputs = template["Outputs"].items()
    yield table(["output", "meaning"], [(f"`{name}`", _one_line(one["Description"])) for name, one in outputs])


def _default(facts: Json) -> str:
    """Return the default of a parameter for a table."""
    if "Default" not in facts:
        return "required"
    return f"`{facts['Default']}`" if facts["Default"] else "empty"


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
    return f"with {_parameters_of(template['Conditions'][condition], template)}"


def _parameters_of(condition: Any, template: Json) -> str:
    """Return the parameters on which a condition depends, in words."""
    if isinstance(condition, list):
        return " and ".join(filter(None, (_parameters_of(one, template) for one in condition)))
    if not isinstance(condition, dict):
        return ""
    if "Ref" in condition:
        return f"`{condition['Ref']}`"
    if isinstance(named := condition.get("Condition"), str):
        return _parameters_of(template["Conditions"][named], template)
    if "Fn::Or" in condition:
        return " or ".join(_parameters_of(one, template) for one in condition["Fn::Or"])
    return _parameters_of(list(condition.values()), template)


def _one_line(text: str) -> str:
    """Return text in one line, with the characters escaped that Markdown would interpret."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    sys.exit(update_page(with_stack))
