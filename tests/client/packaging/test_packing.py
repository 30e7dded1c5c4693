"""Packing a folder: what is left out, the same archive for the same content, and what cannot be packed."""

import io
import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.errors import FolderError, InvalidOption
from sagemaker_queue.jobs.packaging.packing import pack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def packed(folder: Path, *, leave_out: tuple[str, ...] = (), limit: int = 10**6) -> list[str]:
    target = io.BytesIO()
    pack(folder, target, leave_out=leave_out, limit=limit)
    target.seek(0)
    with tarfile.open(fileobj=target) as archive:
        return archive.getnames()


def digest(folder: Path) -> str:
    return pack(folder, io.BytesIO()).digest


def test_everything_is_packed_in_order_but_what_no_job_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(
        folder,
        "b.py",
        "a/deep/x.txt",
        ".hidden",
        ".git/config",
        "a/__pycache__/b.pyc",
        "env/pyvenv.cfg",
        "env/bin/python",
    )
    (folder / "empty").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)  # a socket's path must be short
        listener.bind("socket")
        assert packed(folder) == [".hidden", "a", "a/deep", "a/deep/x.txt", "b.py", "empty"]


def test_ignore_files_are_read_as_git_reads_them(folder: Path) -> None:
    files = [
        "a.log", "keep.log", "sub/a.log", "sub/keep.log", "sub/only.txt", "out/x", "out/y.py", "sub/out/z", "build/x",
        "sub/build/x",
        "docs/a.md", "docs/b.md", "a/b/c/d.tmp", "space name ", "#hash",
    ]  # fmt: skip
    fill(folder, *files)
    (folder / ".gitignore").write_text("*.log\n!keep.log\nout/\n/build\ndocs/*.md\n!docs/b.md\n**/c/*.tmp\n\\#hash\n")
    (folder / "sub" / ".gitignore").write_text("keep.log\n!a.log\nonly.txt\n")
    ours = [name for name in packed(folder) if not (folder / name).is_dir()]
    assert ours == sorted(ours) and set(ours) == listed_by_git(folder)
    assert "sub/a.log" in ours and "sub/keep.log" not in ours and "sub/build/x" in ours


def test_lines_that_git_ignores_are_ignored(folder: Path) -> None:
    fill(folder, "a.log", "b", "c")
    for name in (".gitignore", ".smqignore"):
        (folder / name).write_text("!\n! \nb\\\n\\\n*.log\n")
    assert set(packed(folder)) == listed_by_git(folder) == {".gitignore", ".smqignore", "b", "c"}


def listed_by_git(folder: Path) -> set[str]:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=folder, check=True, capture_output=True, text=True
    )
    return set(filter(None, listed.stdout.split("\0")))


def test_what_is_in_a_folder_is_left_out_but_for_what_comes_back(folder: Path) -> None:
    """As Kedro's projects have it, which do not run without conf/local."""
    fill(folder, "conf/local/.gitkeep", "conf/local/keys.yml", "data/raw/.gitkeep", "data/raw/x.csv", "data/y.csv")
    fill(folder, "logs/deep/x", "conf/base/catalog.yml")
    (folder / ".gitignore").write_text(
        "conf/local/**\n!conf/local/.gitkeep\ndata/**\n!data/**/\n!.gitkeep\nlogs/** \n# conf/**\n"
    )
    ours = {name for name in packed(folder) if not (folder / name).is_dir()}
    assert ours == {".gitignore", "conf/base/catalog.yml", "conf/local/.gitkeep", "data/raw/.gitkeep"}
    assert ours == listed_by_git(folder)


def test_the_ignore_file_of_the_repository_holds_in_a_folder_of_it(folder: Path) -> None:
    fill(folder, ".git/config", "project/train.py", "project/weights.bin", "project/out/x")
    (folder / ".gitignore").write_text("*.bin\n/project/out\n")
    (folder.parent / ".gitignore").write_text("*.py\n")  # no part of the repository
    assert packed(folder / "project") == ["train.py"]


def test_smqignore_has_the_last_word(folder: Path) -> None:
    fill(folder, "train.py", "notes.txt", "weights.bin", "other.bin")
    (folder / ".gitignore").write_text("*.bin\n")
    (folder / ".smqignore").write_text("notes.txt\n!weights.bin\n.*ignore\n")
    assert packed(folder) == ["train.py", "weights.bin"]


def test_data_links_are_left_out(folder: Path) -> None:
    fill(folder, "data/imagenet/x", "data/other/y")
    (folder / "data" / "linked").symlink_to("/mnt")
    assert packed(folder, leave_out=("data/imagenet", "data/linked")) == ["data", "data/other", "data/other/y"]


def test_the_same_content_has_the_same_digest(folder: Path, tmp_path: Path) -> None:
    fill(folder, "b.py", "a/x")
    (folder / "b.py").chmod(0o700)
    (folder / "link").symlink_to("a/x")
    first = io.BytesIO()
    digest_here = pack(folder, first).digest
    other = tmp_path / "elsewhere"
    shutil.copytree(folder, other, symlinks=True)
    os.utime(other / "b.py", (1, 1))
    (other / "b.py").chmod(0o755)
    second = io.BytesIO()
    assert pack(other, second).digest == digest_here
    assert first.getvalue() == second.getvalue()


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "folder"])
def test_any_change_changes_the_digest(folder: Path, change: str) -> None:
    fill(folder, "b.py", "c.py")
    (folder / "link").symlink_to("b.py")
    before = digest(folder)
    if change == "content":
        (folder / "b.py").write_text("B.py")
    elif change == "name":
        (folder / "b.py").rename(folder / "d.py")
    elif change == "mode":
        (folder / "b.py").chmod(0o755)
    elif change == "link":
        (folder / "link").unlink()
        (folder / "link").symlink_to("c.py")
    else:
        (folder / "new").mkdir()
    assert digest(folder) != before


def test_what_is_too_large_is_named(folder: Path) -> None:
    (folder / "weights").mkdir()
    for number in range(7):
        (folder / "weights" / f"{number}.bin").write_bytes(bytes(1_000_000 * number))
    with pytest.raises(FolderError) as error:
        pack(folder, io.BytesIO(), limit=20_000_000)
    lines = str(error.value).splitlines()
    assert "takes 21.0 MB in 7 files; at most 20.0 MB" in lines[0]
    assert lines[1:6] == [f"  {f'{number}.0 MB':>10}  weights/{number}.bin" for number in (6, 5, 4, 3, 2)]
    assert ".smqignore" in lines[6] and "--data" in lines[6] and "--max-code" in lines[6]
    pack(folder, io.BytesIO(), limit=21_000_000)


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "sub/../../outside"])
def test_a_link_that_leads_out_is_refused_with_what_to_do(folder: Path, target: str) -> None:
    (folder / "link").symlink_to(target)
    with pytest.raises(FolderError, match=r"link is a link to .*--data link=s3://.*\.smqignore"):
        pack(folder, io.BytesIO())
    (folder / ".smqignore").write_text("link\n")
    assert packed(folder) == [".smqignore"]


def test_a_file_is_found_through_links(folder: Path) -> None:
    fill(folder, "src/train.py", "src/lib/x.py")
    (folder / "here").symlink_to(".")
    (folder / "train.py").symlink_to("src/train.py")
    (folder / "src/up").symlink_to("../src/lib")
    (folder / "again.py").symlink_to("here/train.py")
    (folder / "gone.py").symlink_to("src/gone.py")
    (folder / "loop.py").symlink_to("loop.py")
    archive = pack(folder, io.BytesIO())
    for name in ("train.py", "again.py", "here/src/train.py", "here/here/train.py", "src/up/x.py"):
        assert archive.has(name) and (folder / name).is_file()
    for name in ("gone.py", "loop.py", "here/gone.py", "src/up/train.py", "src/up", "here"):
        assert not archive.has(name) and not (folder / name).is_file()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is not a folder"):
        pack(tmp_path / "nowhere", io.BytesIO())


class Secrets:
    BY_NAME = (
        *(".env", ".env.local", "deep/.env.production", "prod.env", ".envrc", ".ENV"),
        *(".aws/credentials", "home/.aws/config", ".netrc", "deep/_netrc", "id_rsa", "keys/id_ed25519", ".ssh/config"),
        *(".git-credentials", ".pypirc", ".npmrc", ".docker/config.json", ".kube/config", "kubeconfig", "a.p12"),
        *("service-account-x.json", "kaggle.json", ".pgpass", ".config/gcloud/x.json", "terraform.tfstate"),
        *(".env~", "secrets.yaml", ".streamlit/secrets.toml", "credentials.json"),
    )
    BY_CONTENT = {
        "server.pem": "-----BEGIN RSA PRIVATE KEY-----\nx",
        "id_rsa.bak": "-----BEGIN OPENSSH PRIVATE KEY-----\nx",
        "any.key": "-----BEGIN PRIVATE KEY-----\nx",
        "deploy": "-----BEGIN OPENSSH PRIVATE KEY-----\nx",
        "gcp.json": '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nx"}',
        "notes.txt": "[default]\naws_secret_access_key = abc",
        "cluster.yaml": "users:\n- user:\n    client-key-data: abc",
        "logins.json": '{"auths": {"x": {"auth": "abc"}}}',
    }
    HARMLESS = (
        *(".env.example", "environment.yml", "env/a.py", "train.py", "id_rsa.pub", "config.json", "key.py", "aws.py"),
        *("ca.pem", "docker/config.json"),
    )


@pytest.mark.attack
class TestSecretsStay:
    def fill(self, folder: Path) -> None:
        fill(folder, *Secrets.BY_NAME, *Secrets.HARMLESS)
        for name, content in Secrets.BY_CONTENT.items():
            (folder / name).write_text(content)
        (folder / "link").symlink_to(".env")

    def packed(self, folder: Path, **options: Any) -> set[str]:
        archive = pack(folder, io.BytesIO(), **options)
        return {name for name, size in archive.names if size is not None}

    def test_keys_and_passwords_are_not_packed_and_that_is_told(self, folder: Path) -> None:
        self.fill(folder)
        archive = pack(folder, io.BytesIO())
        assert {name for name, size in archive.names if size is not None} == set(Secrets.HARMLESS)
        for name in (*Secrets.BY_NAME, *Secrets.BY_CONTENT):
            assert any(
                name == kept or (kept.endswith("/") and f"{name}/".startswith(kept)) for kept in archive.kept_back
            )

    def test_a_pattern_or_smqignore_lets_them_go_along(self, folder: Path) -> None:
        fill(folder, ".env", "deep/.env", "id_rsa", "x.pem")
        (folder / "x.pem").write_text(Secrets.BY_CONTENT["server.pem"])
        assert self.packed(folder) == set()
        assert self.packed(folder, include_secrets=["/.env", "*.pem"]) == {".env", "x.pem"}
        (folder / ".smqignore").write_text("!.env\n!x.pem\n")
        assert self.packed(folder) == {".smqignore", ".env", "deep/.env", "x.pem"}
        (folder / ".smqignore").unlink()
        (folder / ".gitignore").write_text("*.x\n!.env\n")  # is about git, and says nothing of jobs
        assert self.packed(folder) == {".gitignore"}

    @pytest.mark.parametrize("patterns", [["!"], [""], ["# .env"], ["!.env"], ["*.pem", "!"], ["!.env", "*.pem"]])
    def test_patterns_without_effect_are_refused(self, folder: Path, patterns: list[str]) -> None:
        fill(folder, ".env", "train.py")
        with pytest.raises(InvalidOption, match="files to pack: "):
            self.packed(folder, include_secrets=patterns)
        assert self.packed(folder, include_secrets=["*.env", "!.env"]) == {"train.py"}

    def test_the_command_tells_and_lists(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        from sagemaker_queue.cli import main

        fill(folder, ".env", "train.py")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "http://127.0.0.1:9/prod")
        options = ["--image", "i", "--role", "r", "-t", "ml.m5.large", "--bucket", "b", "--list-files"]
        assert main(["submit", *options, "--", "true"]) == 0
        captured = capfd.readouterr()
        assert "train.py" in captured.out and ".env" not in captured.out
        assert "not packed, as keys and passwords may be in it: .env." in captured.err
        assert main(["submit", *options, "--include-secrets", ".env", "--", "true"]) == 0
        assert " .env\n" in capfd.readouterr().out
