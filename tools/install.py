"""Install packages for the running Python: by uv, in seconds, or else by pip, in minutes.

    .venv/bin/python tools/install.py WHAT ARGUMENTS...

The argument WHAT describes the packages in words; ARGUMENTS are those of `pip install`. uv itself is installed by pip,
in the version that constraints.txt names. uv takes its packages from the sources that pip is configured with. If uv is
not available or fails, or the variable UV is empty (`make demo UV=`), pip installs all packages.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# The lines of uv's and pip's output that show progress.
PROGRESS = re.compile(
    r"\s*((?:Resolved|Prepared|Installed) .*|Downloading .*[MG]i?B\)|Installing collected packages).*"
)


def main(what: str, arguments: Sequence[str]) -> int:
    """Install the packages, and return the exit status."""
    began = time.monotonic()
    if not (by_uv(what, arguments) or by_pip(what, arguments)):
        return 1
    print(f"Installed {what} in {time.monotonic() - began:.0f} s.", flush=True)
    return 0


def by_uv(what: str, arguments: Sequence[str]) -> bool:
    """Install by uv; return whether that succeeded."""
    if not os.environ.get("UV", "uv"):
        return False
    print(f"Installing {what}, by uv ...", flush=True)
    failure = run([*PIP, "install", "--quiet", "--only-binary=:all:", pinned("uv")], os.environ)
    if failure is None:
        environment = {**os.environ, **uv_environment(pip_settings(), os.environ)}
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
        failure = run([*uv, *arguments], environment)
    if failure is not None:
        print(f"uv cannot do it: {reason(failure)}", flush=True)
    return failure is None


def by_pip(what: str, arguments: Sequence[str]) -> bool:
    """Install by pip; return whether that succeeded. Print pip's output if pip failed."""
    print(f"Installing {what}, by pip, which takes a few minutes ...", flush=True)
    failure = run([*PIP, "install", *arguments], os.environ)
    if failure is not None:
        print(failure, file=sys.stderr)
    return failure is None


def run(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Run a command and show its progress; return None if it succeeded, else its output."""
    written = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout
        for line in process.stdout:
            written.append(line)
            if shown := PROGRESS.fullmatch(line.rstrip()):
                print(f"  {shown[1]}", flush=True)
    return None if process.returncode == 0 else "".join(written).strip()


def reason(failure: str) -> str:
    """Return the most informative line of a program's error output, shortened."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()] or ["it gives no reason"]
    return textwrap.shorten(next((line for line in lines if re.match("error", line, re.IGNORECASE)), lines[-1]), 150)


def pinned(package: str) -> str:
    """Return the requirement of a package with the version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def pip_settings() -> dict[str, str]:
    """Return the settings of pip, from files and from the environment: setting -> value."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    return read_settings(listed)


def read_settings(listed: str) -> dict[str, str]:
    """Return the settings in the output of `pip config list`."""
    settings: dict[str, str] = {}
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)=('.*'|\".*\")$", listed, re.MULTILINE)
    for section in ("global", "install", ":env:"):  # later sections override earlier ones
        settings |= {name: str(ast.literal_eval(value)) for where, name, value in found if where == section}
    return settings


def uv_environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which uv gets pip's settings. Variables that `environ` contains are left out."""

    def variables() -> Iterator[tuple[str, str]]:
        if (index := settings.get("index-url")) and "UV_INDEX_URL" not in environ:
            yield "UV_DEFAULT_INDEX", index
        if (more := settings.get("extra-index-url")) and "UV_EXTRA_INDEX_URL" not in environ:
            yield "UV_INDEX", " ".join(more.split())
            yield "UV_INDEX_STRATEGY", "unsafe-best-match"  # the newest version of all indexes, as with pip
        # A missing folder is an error for uv, but not for pip.
        links = [link for link in settings.get("find-links", "").split() if "://" in link or Path(link).is_dir()]
        if links:
            yield "UV_FIND_LINKS", ",".join(links)
        if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
            yield "UV_NO_INDEX", "1"
        for name, variable in (
            ("cert", "SSL_CERT_FILE"),
            ("client-cert", "SSL_CLIENT_CERT"),
            ("proxy", "ALL_PROXY"),
            ("default-timeout", "UV_HTTP_TIMEOUT"),
            ("timeout", "UV_HTTP_TIMEOUT"),
        ):
            if name in settings:
                yield variable, settings[name]
        if hosts := settings.get("trusted-host"):
            yield "UV_INSECURE_HOST", " ".join(hosts.split())
        yield "UV_LINK_MODE", "copy"  # avoids a warning if uv's cache is on another file system

    return {name: value for name, value in variables() if name not in environ}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
