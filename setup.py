"""What pyproject.toml cannot say: the wheel has a .pth file beside its packages.

Python reads it when it starts; it imports nothing unless SAGEMAKER_QUEUE_INSTALL is set (docs/clients.md).
"""

from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "sagemaker_queue_startup.pth"
LINE = 'import os; os.environ.get("SAGEMAKER_QUEUE_INSTALL") and __import__("sagemaker_queue_startup").begin()\n'


class BuildWithPth(build_py):  # type: ignore[misc]  # setuptools is not typed
    """Writes the file where Python looks for it, also in an editable installation."""

    def run(self) -> None:
        """Build, and then write it."""
        super().run()
        self._target().parent.mkdir(parents=True, exist_ok=True)
        self._target().write_text(LINE)

    def get_outputs(self, *args: Any, **kwargs: Any) -> list[str]:
        """Name it, too."""
        return [*super().get_outputs(*args, **kwargs), str(self._target())]

    def _target(self) -> Path:
        # Of an editable installation, nothing else of what is built goes into the wheel.
        folder = self.get_finalized_command("install_lib").install_dir if self.editable_mode else self.build_lib
        return Path(folder, NAME)


setup(cmdclass={"build_py": BuildWithPth})
