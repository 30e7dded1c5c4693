"""Install the programs that `make clients` runs, each in its environment, with the tools of its language."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.client_programs import Client
from tools.matrix import ROOT, UV, run

FOLDER = ROOT / "build/clients"
SCRIPTS = ROOT / "tools/client_scripts"


class Failed(Exception):
    """A program cannot be installed, or does not work. docs/reference/tested-programs.md shows the message."""


def install_client(client: Client, uv: Mapping[str, str]) -> Path:
    """Install the client's packages into an environment, and return the folder of its programs.

    Clients with the same first package and installer share an environment.

    :raises Failed: a tool is missing, or a package cannot be installed.
    """
    kind = "" if client.installer == "uv" else client.installer
    home = FOLDER / re.sub(r"\W+", "-", f"{client.packages[0]} {kind}").strip("-")
    installers = {
        "npm": (_by_npm, "npm"),
        "maven": (_by_maven, "mvn"),
        "go": (_by_go, "go"),
        "cargo": (_by_cargo, "cargo"),
    }
    if client.installer in installers:
        install_by, program = installers[client.installer]
        if not shutil.which(program):
            raise Failed(f"it cannot be installed: there is no {program} here")
        return install_by(client, home)
    python = str(home / "bin/python")
    if run([*UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home)], uv):
        raise Failed("it cannot be installed")
    install = [*UV, "pip", "install", "--quiet", "--python", python, "--upgrade"]
    packages = _unpack_debian_package(client, home) if client.installer == "apt" else list(client.packages)
    this_checkout = ["--reinstall-package", "sagemaker-queue", str(ROOT)] if client.installer == "uv" else []
    if run([*install, *packages, *this_checkout], uv):
        raise Failed("it cannot be installed")
    return home / "bin"


def _unpack_debian_package(client: Client, home: Path) -> list[str]:
    """Download a Debian package written in Python, unpack it into the environment, and return its requirements.

    The machine itself stays unchanged.
    """
    debian = home / "debian"
    shutil.rmtree(debian, ignore_errors=True)
    debian.mkdir()
    (name,) = client.packages
    download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name]
    if not shutil.which(download[0]):
        raise Failed("it cannot be installed: there is no apt-get here")
    if subprocess.run(download, cwd=debian, check=False).returncode:
        raise Failed("it cannot be installed")
    (archive,) = debian.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(archive), str(debian)], check=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    shutil.copytree(debian / "usr/lib/python3/dist-packages", site, dirs_exist_ok=True)
    for program in (debian / "usr/bin").iterdir():
        (home / "bin" / program.name).write_text(f"#!{home}/bin/python\n{program.read_text()}")
        (home / "bin" / program.name).chmod(0o755)
    return re.findall(r"^Requires-Dist: (.*)$", next(site.glob(f"{name}-*/METADATA")).read_text(), re.MULTILINE)


def _by_npm(client: Client, home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    if run(
        ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(home), *client.packages], os.environ
    ):
        raise Failed("it cannot be installed")
    programs = home / "node_modules/.bin"
    programs.mkdir(exist_ok=True)
    return programs


def _by_maven(client: Client, home: Path) -> Path:
    """Download the jars that client_scripts/java.xml names, and return their folder."""
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}"]
    if run(["mvn", "-q", "-B", "-f", str(SCRIPTS / "java.xml"), *copy], os.environ):
        raise Failed("it cannot be installed")
    return home / "jars"


def _by_go(client: Client, home: Path) -> Path:
    """Build client_scripts/go_job.go, and return the program's folder."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPTS / "go_job.go", home / "main.go")
    (home / "go.mod").write_text("module job\n\ngo 1.24\n")
    steps = [["get", *client.packages], ["mod", "tidy"], ["build", "-o", "bin/job", "."]]
    if any(run(["go", "-C", str(home), *step], os.environ) for step in steps):
        raise Failed("it cannot be installed")
    return home / "bin"


def _by_cargo(client: Client, home: Path) -> Path:
    """Build client_scripts/rust_job.rs, and return the program's folder."""
    (home / "src").mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPTS / "rust_job.rs", home / "src/main.rs")
    manifest = home / "Cargo.toml"
    manifest.write_text(
        '[package]\nname = "job"\nedition = "2024"\n\n[profile.dev]\ndebug = false\n\n[dependencies]\n'
        + "".join(f"{package}\n" for package in client.packages)
    )
    if run(["cargo", "build", "--quiet", "--manifest-path", str(manifest)], os.environ):
        raise Failed("it cannot be installed")
    return home / "target/debug"


def versions(client: Client, programs: Path) -> str:
    """Return the versions of the packages in ``Client.shown``, as docs/reference/tested-programs.md shows them."""
    if client.installer == "npm":
        files = {name: programs.parent / name / "package.json" for name in client.shown}
        return ", ".join(f"{name} {json.loads(file.read_text())['version']}" for name, file in files.items())
    if client.installer == "maven":
        jars = [max(programs.glob(f"{name}-[0-9]*.jar")) for name in client.shown]
        return ", ".join(jar.stem.replace("-", " ") for jar in jars)
    if client.installer in {"go", "cargo"}:
        home = next(folder for folder in programs.parents if folder.parent == FOLDER)
        locked = home / ("go.mod" if client.installer == "go" else "Cargo.lock")
        return ", ".join(f"{name.rpartition('/')[2]} {version_in(locked, name)}" for name in client.shown)
    script = (
        "import sys, importlib.metadata as m; print(*(f'{name} {m.version(name)}' for name in sys.argv[1:]), sep=', ')"
    )
    command = [str(programs / "python"), "-c", script, *client.shown]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def version_in(locked: Path, name: str) -> str:
    """Return the version of a module in a go.mod, or of a crate in a Cargo.lock."""
    found = re.search(rf'(?:"{name}"\nversion = "|\t{name} v)([0-9.]+)', locked.read_text())
    return found[1] if found else "?"
