"""The parts of the build that pyproject.toml cannot express.

- The wheel has a .pth file beside its packages. Python executes the .pth file at each start. The file imports nothing
  unless SAGEMAKER_QUEUE_INSTALL is set (docs/run/other-programs.md).
- The wheel has no top-level packages with generic names, so that a folder `job_queue` of a user cannot shadow a part of
  the client: `api_contract` and `job_queue` become subpackages of `sagemaker_queue._shared`
  (docs/developers/adr/0111-the-wheel-has-no-generic-names.md). An editable installation keeps the checkout's names.
"""

import re
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

NAME = "sagemaker_queue_startup.pth"
LINE = 'import os; os.environ.get("SAGEMAKER_QUEUE_INSTALL") and __import__("sagemaker_queue_startup").begin()\n'
SHARED = "sagemaker_queue._shared"
MOVED = ("api_contract", "job_queue")
IMPORT = re.compile(rf"^(\s*)(from|import) ({'|'.join(MOVED)})\b", re.MULTILINE)
# An import that binds the package's name, such as `import job_queue.scheduler`, cannot be renamed by its first words.
BOUND = re.compile(rf"^\s*import ({'|'.join(MOVED)})\b", re.MULTILINE)


class BuildClient(build_py):  # type: ignore[misc]  # setuptools is not typed
    """A build step that renames the shared packages, and writes the .pth file into site-packages."""

    def run(self) -> None:
        """Build the packages, rename the shared ones unless the installation is editable, and write the .pth file."""
        super().run()
        if not self.editable_mode:
            _rename(Path(self.build_lib))
        self._target().parent.mkdir(parents=True, exist_ok=True)
        self._target().write_text(LINE)

    def get_outputs(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the files that the build writes, including the .pth file."""
        outputs = [*super().get_outputs(*args, **kwargs), str(self._target())]
        if self.editable_mode:
            return outputs
        return [str(_renamed(Path(self.build_lib), Path(output))) for output in outputs]

    def _target(self) -> Path:
        # The wheel of an editable installation contains no file of build_lib. The folder of install_lib becomes this
        # wheel.
        folder = self.get_finalized_command("install_lib").install_dir if self.editable_mode else self.build_lib
        return Path(folder, NAME)


class TopLevelNames(egg_info):  # type: ignore[misc]
    """The metadata of the distribution; its list of top-level packages has the names of the wheel."""

    def run(self) -> None:
        """Write the metadata, and remove the renamed packages from the list."""
        super().run()
        listed = Path(self.egg_info, "top_level.txt")
        names = [name for name in listed.read_text().split() if name not in MOVED]
        listed.write_text("".join(f"{name}\n" for name in names))


def _rename(build: Path) -> None:
    target = build.joinpath(*SHARED.split("."))
    for source in [path for name in MOVED for path in sorted((build / name).rglob("*")) if path.is_file()]:
        moved = _renamed(build, source)
        moved.parent.mkdir(parents=True, exist_ok=True)
        source.replace(moved)
    target.mkdir(exist_ok=True)
    (target / "__init__.py").write_text('"""Packages that the client shares with the queue."""\n')
    for path in build.rglob("*.py"):
        text = path.read_text()
        if BOUND.search(text):
            raise SystemExit(f"{path}: write `from package import name`, which the build of the wheel can rename")
        path.write_text(IMPORT.sub(rf"\1\2 {SHARED}.\3", text))


def _renamed(build: Path, path: Path) -> Path:
    inside = path.relative_to(build)
    return build.joinpath(*SHARED.split("."), inside) if inside.parts[0] in MOVED else path


setup(cmdclass={"build_py": BuildClient, "egg_info": TopLevelNames})
