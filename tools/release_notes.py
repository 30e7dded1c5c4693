"""``python -m tools.release_notes v1.0.0 build/release-notes.md``: check a release's tag, and extract its changes.

The tag must have the version of pyproject.toml, of CITATION.cff and of the template's metadata for the AWS Serverless
Application Repository. CHANGELOG.md must have a section about this version.
"""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).parents[1]


class ReleaseError(Exception):
    """A tag that differs from the version of this checkout, or a version without changes in CHANGELOG.md."""


def versions() -> Mapping[str, str]:
    """Return the version in each file that has one: file -> version."""
    template = yaml_parse((ROOT / "template.yaml").read_text())
    return {
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "CITATION.cff": str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]),
        "template.yaml": template["Metadata"]["AWS::ServerlessRepo::Application"]["SemanticVersion"],
    }


def check_tag(tag: str, known: Mapping[str, str]) -> str:
    """Return the version of the tag. Raise ReleaseError if a file has another version."""
    version = tag.removeprefix("v")
    if other := [f"{file} has {its}" for file, its in known.items() if f"v{its}" != tag]:
        raise ReleaseError(f"The tag {tag} is not the version of this checkout: {', '.join(other)}.")
    return version


def notes(changelog: str, version: str) -> str:
    """Return the text of the changelog's section about a version. Raise ReleaseError if there is none."""
    heading = rf"^## \[?{re.escape(version)}\]?(?: .*)?$"
    sections = re.split(heading, changelog, maxsplit=1, flags=re.MULTILINE)
    text = re.split(r"^## ", sections[1], maxsplit=1, flags=re.MULTILINE)[0].strip() if len(sections) > 1 else ""
    if not text:
        raise ReleaseError(f'CHANGELOG.md says nothing about {version}. Add a section "## {version}".')
    return f"{text}\n"


def main(arguments: Sequence[str]) -> int:
    """Write the notes of a release. Return the exit status."""
    tag, target = arguments
    try:
        text = notes((ROOT / "CHANGELOG.md").read_text(), check_tag(tag, versions()))
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
