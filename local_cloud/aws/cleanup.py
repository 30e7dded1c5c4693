"""Removal of a local cloud's processes and files, even if the process that started the cloud is killed."""

import secrets
import subprocess
import sys
from pathlib import Path

from local_cloud.user_errors import LocalCloudError

PROCESS = Path(__file__).resolve().with_name("cleanup_process.py")


class Cleanup:
    """A separate process that ends the cloud's processes and removes the cloud's folder.

    Create this object before anything else, keep all files in `folder`, add `mark` to the environment of every process,
    and call `close` last. A pipe connects the current process to the cleanup process. The cleanup begins when the pipe
    is closed, which also happens if the current process is killed.
    """

    def __init__(self) -> None:
        name = f"LOCAL_CLOUD_{secrets.token_hex(8).upper()}"
        self.mark = {name: "1"}
        self._process = subprocess.Popen(
            # -P: this file's folder must not come before the libraries on the import path
            [sys.executable, "-P", str(PROCESS), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            folder = answer.readline().strip()
        if not folder:
            raise LocalCloudError("The process that cleans up after the local cloud could not be started.")
        self.folder = Path(folder)

    def remove_at_end(self, path: Path) -> None:
        """Let the cleanup also remove this file, which may be outside of the folder."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path.absolute()}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the cloud's processes and remove its folder and files. Return when all of them are gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
