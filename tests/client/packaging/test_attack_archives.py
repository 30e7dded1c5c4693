"""Archives of results made to fill the disk or the memory of the person that fetches them."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
from collections import namedtuple
from pathlib import Path

import pytest

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging import archive_reader
from sagemaker_queue.jobs.packaging.archive_reader import ArchiveBounds
from sagemaker_queue.jobs.packaging.unpacking import unpack
from tests.waiting import PATIENCE

pytestmark = pytest.mark.attack

GB = 10**9
TIB = 1 << 40
BLOCK = tarfile.BLOCKSIZE


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % BLOCK)


def pax(records: dict[str, str], kind: bytes = tarfile.XHDTYPE) -> bytes:
    body = b""
    for key, value in records.items():
        rest = f" {key}={value}\n".encode()
        length = len(rest) + len(str(len(rest)))
        length += len(str(length)) - len(str(len(rest)))
        body += str(length).encode() + rest
    return header("././@PaxHeader", len(body), kind) + padded(body)


def gnu_sparse(size: int) -> bytes:
    """Return the old GNU form: a header of one block for a file of any size."""
    block = bytearray(header("sparse", 0, tarfile.GNUTYPE_SPARSE))
    block[386:410] = b"00000000000\0" + b"00000000000\0"  # one part, of nothing
    block[483:495] = b"\x80" + size.to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax_sparse_1_0(fields: int) -> bytes:
    """Return the form whose map stands before the content, with so many parts."""
    numbers = f"{fields}\n".encode() + b"0\n0\n" * fields
    records = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "x",
        "GNU.sparse.realsize": str(TIB),
    }
    return pax(records) + header("x", len(padded(numbers))) + padded(numbers)


SPARSE = {
    "gnu": gnu_sparse(8 * TIB),
    "pax-0.1": pax({"GNU.sparse.map": "0,0", "GNU.sparse.size": str(8 * TIB), "GNU.sparse.numblocks": "1"})
    + header("x"),
    "pax-0.0": pax({"GNU.sparse.offset": "0", "GNU.sparse.numbytes": "0", "GNU.sparse.size": str(8 * TIB)})
    + header("x"),
    "pax-1.0": pax_sparse_1_0(1),
}


def written(path: Path, *blocks: bytes) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for block in blocks:
            file.write(block)
        file.write(b"\0" * 2 * BLOCK)
    return path


def plain(*files: tuple[str, bytes]) -> bytes:
    return b"".join(header(name, len(content)) + padded(content) for name, content in files)


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("member", SPARSE.values(), ids=SPARSE)
def test_a_sparse_file_is_not_written(tmp_path: Path, member: bytes) -> None:
    packed = written(tmp_path / "x.tar.gz", plain(("before", b"1")), member, plain(("after", b"2")))
    assert packed.stat().st_size < 1000
    done = unpack(packed, tmp_path / "got")
    assert sorted(path.name for path in (tmp_path / "got").iterdir()) == ["after", "before"]
    ((_, why),) = done.refused
    assert "sparse" in why


LARGE_HEADERS = {
    "pax": (tarfile.XHDTYPE, 300),
    "pax-global": (tarfile.XGLTYPE, 300),
    "solaris": (tarfile.SOLARIS_XHDTYPE, 300),
    "longname": (tarfile.GNUTYPE_LONGNAME, 300),
    "longlink": (tarfile.GNUTYPE_LONGLINK, 300),
}
# Written as a program of its own: the limit of memory would stay with this one.
WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.unpacking import unpack
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20,) * 2)
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except StorageError as error:
    print(error)
"""


def unpacked_with_little_memory(packed: Path, folder: Path) -> str:
    command = [sys.executable, "-c", WITH_LITTLE_MEMORY, str(packed), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert not done.stderr and not done.returncode, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
@pytest.mark.parametrize(("kind", "mebibytes"), LARGE_HEADERS.values(), ids=LARGE_HEADERS)
def test_a_large_header_is_refused_before_it_is_read(tmp_path: Path, kind: bytes, mebibytes: int) -> None:
    size = mebibytes << 20
    blocks = [header("././@PaxHeader", size, kind), *[b"\0" * (1 << 20)] * mebibytes, plain(("x", b"1"))]
    packed = written(tmp_path / "x.tar.gz", *blocks)
    assert packed.stat().st_size < 3_000_000
    said = unpacked_with_little_memory(packed, tmp_path / "got")
    assert "is refused: a header of it is larger than 1.0 MB" in said


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_map_of_a_sparse_file_is_not_read_without_end(tmp_path: Path) -> None:
    packed = written(tmp_path / "x.tar.gz", pax_sparse_1_0(10_000_000))
    assert "header" in unpacked_with_little_memory(packed, tmp_path / "got")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_of_headers_are_refused(tmp_path: Path, kind: bytes) -> None:
    chain = [header("././@PaxHeader", 8, kind) + padded(b"8 a=bcd\n")] * 5000
    packed = written(tmp_path / "x.tar.gz", *chain, plain(("x", b"1")))
    with pytest.raises(StorageError, match="header"):
        unpack(packed, tmp_path / "got")


def test_global_headers_do_not_add_up(tmp_path: Path) -> None:
    """Python keeps all of them, and copies them for each member."""
    headers = [pax({f"k{number}.{part}": "v" * 99 for part in range(900)}, tarfile.XGLTYPE) for number in range(9)]
    packed = written(tmp_path / "x.tar.gz", *(one + plain((f"f{at}", b"1")) for at, one in enumerate(headers)))
    with pytest.raises(StorageError, match="header"):
        unpack(packed, tmp_path / "got")


def test_a_member_that_says_it_is_large_is_refused_before_a_byte_of_it(tmp_path: Path) -> None:
    packed = written(tmp_path / "x.tar.gz", plain(("small", b"1")), header("large", 8 * TIB))
    with pytest.raises(StorageError, match=r"more than .* GB.*--max-size"):
        unpack(packed, tmp_path / "got")
    assert not (tmp_path / "got").exists(), "nothing of it stays on the disk"
    assert packed.exists()


def test_many_that_are_each_small_enough_are_refused_together(tmp_path: Path) -> None:
    one = b"\0" * 100_000
    packed = written(tmp_path / "x.tar.gz", *(plain((f"f{number}", one)) for number in range(30)))
    with pytest.raises(StorageError, match="--max-size"):
        unpack(packed, tmp_path / "got", ArchiveBounds(largest=2_000_000))
    assert not (tmp_path / "got").exists()
    assert unpack(packed, tmp_path / "got", ArchiveBounds(largest=4_000_000)).files == 30


def test_several_archives_share_one_bound(tmp_path: Path) -> None:
    room = ArchiveBounds(largest=2_000_000)
    packed = written(tmp_path / "x.tar.gz", plain(("f", b"\0" * 1_200_000)))
    unpack(packed, tmp_path / "first", room)
    with pytest.raises(StorageError, match="--max-size"):
        unpack(packed, tmp_path / "second", room)


def test_what_is_refused_takes_time_and_counts(tmp_path: Path) -> None:
    """A member that is not written is unzipped all the same."""
    packed = written(tmp_path / "x.tar.gz", *(plain(("../out", b"\0" * 100_000)) for _ in range(30)))
    with pytest.raises(StorageError, match="--max-size"):
        unpack(packed, tmp_path / "got", ArchiveBounds(largest=2_000_000))


def test_by_default_an_archive_may_grow_tenfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "ALWAYS_ALLOWED", 1_000_000)
    packed = written(tmp_path / "x.tar.gz", plain(("zeros", b"\0" * 3_000_000)))
    with pytest.raises(StorageError, match=r"more than 1\.0 MB"):
        unpack(packed, tmp_path / "got")
    honest = written(tmp_path / "y.tar.gz", plain(("random", bytes(i * i % 251 for i in range(3_000_000)))))
    honest.write_bytes(gzip.compress(gzip.decompress(honest.read_bytes()), 0))
    assert unpack(honest, tmp_path / "got").size == 3_000_000


def test_by_default_two_archives_may_grow_tenfold_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "ALWAYS_ALLOWED", 1_000_000)
    bounds = ArchiveBounds()
    large = written(tmp_path / "x.tar.gz", plain(("random", bytes(i * i % 251 for i in range(3_000_000)))))
    large.write_bytes(gzip.compress(gzip.decompress(large.read_bytes()), 0))
    assert unpack(large, tmp_path / "x", bounds).size == 3_000_000
    small = written(tmp_path / "y.tar.gz", plain(("a", b"1")))
    assert unpack(small, tmp_path / "y", bounds).size == 1
    zeros = written(tmp_path / "z.tar.gz", plain(("zeros", b"\0" * 40_000_000)))
    with pytest.raises(StorageError, match="unpacks to more than"):
        unpack(zeros, tmp_path / "z", bounds)


def test_the_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    packed = written(tmp_path / "x.tar.gz", plain(("f", b"\0" * 30_000_000)))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(GB, 0, archive_reader.KEPT_FREE + 20_000_000))
    with pytest.raises(StorageError, match=r"disk has .* free"):
        unpack(packed, tmp_path / "got", ArchiveBounds(largest=TIB))
    assert not (tmp_path / "got").exists()


def test_so_many_files_are_refused(tmp_path: Path) -> None:
    packed = written(tmp_path / "x.tar.gz", *(header(f"f{number}") for number in range(1001)))
    with pytest.raises(StorageError, match="more than 1,000 files.*--max-files"):
        unpack(packed, tmp_path / "got", ArchiveBounds(most_files=1000))
    assert not (tmp_path / "got").exists()
    assert unpack(packed, tmp_path / "got", ArchiveBounds(most_files=1001)).files == 1001


def test_folders_and_refused_members_count_as_well(tmp_path: Path) -> None:
    packed = written(
        tmp_path / "x.tar.gz",
        *(header(f"../f{number}") for number in range(600)),
        *([header("d", 0, tarfile.DIRTYPE)] * 600),
    )
    with pytest.raises(StorageError, match="--max-files"):
        unpack(packed, tmp_path / "got", ArchiveBounds(most_files=1000))


def test_one_path_does_not_make_folders_without_end(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 3000)
    packed = written(tmp_path / "x.tar.gz", pax({"path": deep}) + header("x"), plain(("good", b"1")))
    done = unpack(packed, tmp_path / "got")
    assert [why for _, why in done.refused] == ["its path has more than 100 folders"]
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["good"]


def test_ordinary_archives_are_unpacked_in_each_format(tmp_path: Path) -> None:
    name = "deep/" * 30 + "ä" * 60
    for number, kind in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", format=kind) as tar:
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
        packed = tmp_path / f"{number}.tar.gz"
        packed.write_bytes(buffer.getvalue())
        done = unpack(packed, tmp_path / str(number))
        assert (done.files, done.refused) == (1, ())
        assert (tmp_path / str(number) / name).read_bytes() == b"hello"
