"""The part of the build that pyproject.toml cannot express: the wheel has a .pth file beside its packages.

Python executes the .pth file at each start. The file imports nothing unless SAGEMAKER_QUEUE_INSTALL is set
(docs/run/other-programs.md).
"""

from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "sagemaker_queue_startup.pth"
LINE = 'import os; os.environ.get("SAGEMAKER_QUEUE_INSTALL") and __import__("sagemaker_queue_startup").begin()\n'


class BuildWithPth(build_py):  # type: ignore[misc]  # setuptools is not typed
    """A build step that also writes the .pth file into site-packages, for an editable installation as well."""

    def run(self) -> None:
        """Build the packages, and write the .pth file."""
        super().run()
        self._target().parent.mkdir(parents=True, exist_ok=True)
        self._target().write_text(LINE)

    def get_outputs(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the files that the build writes, including the .pth file."""
        return [*super().get_outputs(*args, **kwargs), str(self._target())]

    def _target(self) -> Path:
        # The wheel of an editable installation contains no file of build_lib. The folder of install_lib becomes this
        # wheel.
        folder = self.get_finalized_command("install_lib").install_dir if self.editable_mode else self.build_lib
        return Path(folder, NAME)


setup(cmdclass={"build_py": BuildWithPth})
