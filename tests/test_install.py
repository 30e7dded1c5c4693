"""tools/install.py: by uv, from where pip is configured to look; by pip where there is no uv.

That uv installs is shown by test_guide.py, which types `make demo`.
"""

import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tools.install import read_settings, uv_environment

ROOT = Path(__file__).parent.parent
WHEEL = "tiny-1-py3-none-any.whl"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    return folder / "bin/python"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package, and a copy of the installer with a constraints.txt of its own beside it."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/install.py", tmp_path / "tools")
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        wheel.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.dist-info/RECORD", "tiny.py,,\ntiny-1.dist-info/METADATA,,\ntiny-1.dist-info/WHEEL,,\n")
    return tmp_path


def install(python: Path, package: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, package / "tools/install.py", "the package", *arguments],
        cwd=package, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.thorough
def test_pip_installs_if_that_is_asked_for(python: Path, package: Path) -> None:
    done = install(python, package, WHEEL, UV="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Installing the package, by pip,")


@pytest.mark.thorough
def test_pip_installs_where_uv_cannot_be_had(python: Path, package: Path) -> None:
    (package / "constraints.txt").write_text("uv==0.0.0.1\n")
    done = install(python, package, WHEEL)
    assert (done.returncode, done.stderr) == (0, "")
    assert "uv cannot do it: ERROR: " in done.stdout and "by pip" in done.stdout
    assert "Installed the package in " in done.stdout


@pytest.mark.thorough
def test_what_nobody_can_install_is_told_in_full(python: Path, package: Path) -> None:
    done = install(python, package, "./no-such-folder")
    assert done.returncode == 1
    assert "no-such-folder" in done.stderr


def test_what_pip_is_configured_with_is_read() -> None:
    listed = """\
:env:.index-url='https://environment.example/simple'
global.cert='/certificates'
global.extra-index-url='\\nhttps://one.example\\nhttps://two.example'
global.index-url='https://file.example/simple'
install.find-links="/it's"
list.format='columns'
"""
    assert read_settings(listed) == {
        "index-url": "https://environment.example/simple",
        "cert": "/certificates",
        "extra-index-url": "\nhttps://one.example\nhttps://two.example",
        "find-links": "/it's",
    }


def test_uv_looks_where_pip_does(tmp_path: Path) -> None:
    settings = {
        "index-url": "https://index.example/simple",
        "extra-index-url": "\nhttps://one.example\nhttps://two.example",
        "find-links": f"{tmp_path} /no/such/folder https://links.example",
        "cert": "/certificates",
        "timeout": "60",
        "no-index": "0",
    }
    assert uv_environment(settings, {}) == {
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://links.example",
        "SSL_CERT_FILE": "/certificates",
        "UV_HTTP_TIMEOUT": "60",
        "UV_LINK_MODE": "copy",
    }
    told = {"UV_INDEX_URL": "https://own.example", "SSL_CERT_FILE": "/own"}
    for variable in ("UV_DEFAULT_INDEX", "SSL_CERT_FILE"):
        assert variable not in uv_environment(settings, told)
    assert uv_environment({}, {"UV_LINK_MODE": "hardlink"}) == {}
