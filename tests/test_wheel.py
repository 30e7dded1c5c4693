"""The wheel of the client: its files, and an import beside packages of a user that have the names of ours."""

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {"sagemaker_queue", "sagemaker_queue_startup", "sagemaker_queue_startup.pth"}
CHECK = "from sagemaker_queue.cli import main; raise SystemExit(main(['policy', 'check', '--offline', 'policy.yaml']))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as pip builds it from the files that git knows."""
    source = tmp_path_factory.mktemp("source")
    names = ["api_contract", "client", "job_queue", "pyproject.toml", "setup.py", "README.md", "LICENSE"]
    known = subprocess.run(
        ["git", "ls-files", "-z", "--", *names], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, known.stdout.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(build, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_no_generic_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        (listed,) = (name for name in files if name.endswith("top_level.txt"))
        assert set(archive.read(listed).decode().split()) <= TOP_LEVEL
    assert {name.split("/")[0] for name in files if ".dist-info/" not in name} == TOP_LEVEL
    assert "sagemaker_queue/_shared/job_queue/scheduler/planner.py" in files
    assert "sagemaker_queue/_shared/api_contract/models.py" in files
    assert not [name for name in files if "/controller/" in name or "/adapters/" in name], "these run in the function"


def test_the_client_is_imported_beside_packages_of_the_user_with_the_same_names(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", with_pip=False)
    python = tmp_path / "environment/bin/python"
    (site,) = (tmp_path / "environment/lib").glob("python*/site-packages")
    # The dependencies come from the environment of the tests, after the wheel's own files.
    (site / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    user = tmp_path / "user"
    for name in ("api_contract", "job_queue"):
        (user / name).mkdir(parents=True)
        (user / name / "__init__.py").write_text("raise ImportError('a package of the user')")
    (user / "policy.yaml").write_bytes((ROOT / "examples/two_teams.yaml").read_bytes())
    done = subprocess.run([python, "-c", CHECK], cwd=user, capture_output=True, text=True, check=False, env={})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
