"""Archives that others may have written, unpacked into a folder: nothing is written outside it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.unpacking import unpack

pytestmark = pytest.mark.attack


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            member.size = 5 if member.isreg() else 0
            tar.addfile(member, io.BytesIO(b"hello"))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_plain_files_are_unpacked_with_their_execute_bit(tmp_path: Path) -> None:
    members = [entry("."), entry("./a/b"), entry("run.sh", mode=0o6755), entry("a", tarfile.DIRTYPE)]
    members[0].type = tarfile.DIRTYPE
    done = unpack(archive(tmp_path / "x.tar.gz", *members), tmp_path / "got")
    assert (done.files, done.size, done.refused) == (2, 10, ())
    assert (tmp_path / "got/a/b").read_bytes() == b"hello"
    modes = {name: (tmp_path / "got" / name).stat().st_mode & 0o7777 for name in ("run.sh", "a/b")}
    assert modes["run.sh"] & 0o100 and not modes["a/b"] & 0o100 and not modes["run.sh"] & 0o7000


@pytest.mark.parametrize(
    "members",
    [
        [entry("../out")],
        [entry("a/../../out")],
        [entry("/{outside}/out")],
        [entry("..\\out")],
        [entry("link", tarfile.SYMTYPE, ".."), entry("link/out")],
        [entry("link", tarfile.SYMTYPE, "/{outside}"), entry("link/out")],
        [entry("out", tarfile.LNKTYPE, "/{outside}/secret")],
        [entry("out", tarfile.LNKTYPE, "../secret")],
        [entry("fifo", tarfile.FIFOTYPE), entry("device", tarfile.CHRTYPE)],
        [entry("x\x1b]0;owned\x07")],
    ],
    ids=lambda members: repr(members[0].name) + str(members[0].type),
)
def test_no_member_leads_out_of_the_folder(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("mine")
    (tmp_path / "secret").write_text("mine")
    for member in members:
        member.name = member.name.replace("{outside}", str(outside))
        member.linkname = member.linkname.replace("{outside}", str(outside))
    packed = archive(tmp_path / "x.tar.gz", *members, entry("good"))
    done = unpack(packed, tmp_path / "got")
    assert done.refused and members[0].name == done.refused[0][0]
    assert files(tmp_path) == {"outside/secret", "secret", "x.tar.gz", "got/good"} | (
        {"got/link/out"} if len(members) == 2 and members[1].name == "link/out" else set()  # in a folder of its own
    )
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    assert {(outside / "secret").read_text(), (tmp_path / "secret").read_text()} == {"mine"}


def test_a_name_that_stands_twice_is_written_once(tmp_path: Path) -> None:
    done = unpack(archive(tmp_path / "x.tar.gz", entry("a"), entry("a"), entry("a/b")), tmp_path / "got")
    assert files(tmp_path / "got") == {"a"}
    assert [name for name, _ in done.refused] == ["a", "a/b"]


def test_a_broken_archive_says_so_and_stays(tmp_path: Path) -> None:
    whole = archive(tmp_path / "x.tar.gz", entry("a"))
    for content in (whole.read_bytes()[:-20], b"no archive"):
        whole.write_bytes(content)
        with pytest.raises(StorageError, match="cannot be unpacked, and stays as it is"):
            unpack(whole, tmp_path / "got")
        assert whole.exists()
