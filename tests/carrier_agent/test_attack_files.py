"""Files that a member leaves to make the agent wait, read too much, or touch files of others."""

import contextlib
import io
import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from job_queue.carrier_agent.files import Bounds, Directory, LimitExceeded, Source, Target, remove, walk
from job_queue.carrier_agent.member import cause
from job_queue.carrier_agent.pace import Pace, within
from job_queue.carrier_agent.s3 import S3Error
from job_queue.carrier_agent.transfer import Checkpoints, fetch_channel, send_packed
from tests.carrier_agent.carrier import BUCKET, Carrier
from tests.carrier_agent.test_members import unpacked
from tests.carrier_agent.test_s3 import s3
from tests.waiting import PATIENCE

pytestmark = pytest.mark.attack

JOB = "rogue-qstamp-1"
UNTIL_STOPPED = "echo up; while :; do sleep 0.05; done"
FAILURES = {
    "fifo": 'mkfifo "$F"',
    "link to a fifo": 'mkfifo "$TMPDIR/fifo"; ln -s "$TMPDIR/fifo" "$F"',
    "link to /dev/zero": 'ln -s /dev/zero "$F"',
    "link to /etc/passwd": 'ln -s /etc/passwd "$F"',
    "folder": 'mkdir "$F"',
    "socket": "python3 -c \"import os,socket; os.chdir(os.path.dirname('$F')); socket.socket(1).bind('failure')\"",
    "device": 'mknod "$F" c 1 5 2>/dev/null || mkfifo "$F"',
    "link to a folder": 'cd "$TMPDIR"; mv "$SM_OUTPUT_DIR" o; echo x > o/failure; ln -s "$TMPDIR/o" "$SM_OUTPUT_DIR"',
}


def saving(carrier: Carrier, **more: Any) -> dict[str, Any]:
    """The fields of a request whose checkpoints and results are saved."""
    home = f"s3://{BUCKET}/{carrier.prefix}"
    return {
        "CheckpointConfig": {"S3Uri": f"{home}/saved"},
        "OutputDataConfig": {"S3OutputPath": f"{home}/results"},
        **more,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_that_is_no_file_says_nothing_and_holds_nothing_up(carrier: Carrier, kind: str) -> None:
    carrier.assign(JOB, f'F="$SM_OUTPUT_DIR/failure"; {FAILURES[kind]}; exit 3', request=saving(carrier))
    ended = carrier.end_of(JOB)
    assert ended["reason"].startswith("AlgorithmError: , exit code: 3")
    assert not (carrier.base / "members" / JOB).exists()


def test_a_failure_of_a_petabyte_is_read_at_its_beginning(carrier: Carrier) -> None:
    carrier.assign(JOB, 'printf why > "$SM_OUTPUT_DIR/failure"; truncate -s 1T "$SM_OUTPUT_DIR/failure"; exit 3')
    ended = carrier.end_of(JOB)
    assert ended["reason"].startswith("AlgorithmError: why")
    assert len(ended["reason"]) <= 1024
    assert ended["reason"].endswith("exit code: 3")


LEFT = {
    "sparse": ('truncate -s 1T "$D/huge"', "MiB of the carrier's disk"),
    "deep": ("python3 -c \"import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\"", "folders deeper than"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", LEFT)
@pytest.mark.parametrize("folder", ["SM_MODEL_DIR", "SM_CHECKPOINT_DIR"])
def test_results_beyond_a_limit_are_refused_with_a_reason(carrier: Carrier, kind: str, folder: str) -> None:
    script, why = LEFT[kind]
    carrier.assign(JOB, f'D="${folder}"; cd "$D"; {script}', request=saving(carrier), disk=1 << 30)
    ended = carrier.end_of(JOB)
    subject = "results" if folder == "SM_MODEL_DIR" else "checkpoints"
    assert ended["status"] == "Failed"
    assert f"{subject} not saved: " in ended["reason"]
    assert why in ended["reason"]
    assert why in ended["unsaved"]
    assert any(f"{subject} not saved: " in line for line in carrier.lines(JOB))
    carrier.assign("next-qstamp-1", "echo fine")
    assert carrier.end_of("next-qstamp-1")["status"] == "Completed"
    assert not (carrier.base / "members" / JOB).exists()


def test_special_files_and_links_are_left_out_and_the_rest_is_saved(carrier: Carrier, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another")
    script = f"""
        for d in "$SM_MODEL_DIR" "$SM_CHECKPOINT_DIR"; do
            cd "$d"; echo mine > best; ln -s best last; ln best hard; mkfifo fifo; ln -s {secret} secret
            ln -s {tmp_path} folder; ln -s ../../../../etc/passwd up; mknod zero c 1 5 2>/dev/null
            touch "$(printf 'a\\377b')"
        done
        ln -s /dev/zero "$SM_MODEL_DIR/endless"
    """
    carrier.assign(JOB, script, request=saving(carrier))
    ended = carrier.end_of(JOB)
    assert ended["status"] == "Completed", carrier.log
    assert sorted(carrier.keys("saved/")) == ["best", "hard"]
    packed = carrier.get(f"results/{JOB}/output/model.tar.gz")
    assert unpacked(packed) == {"best": b"mine\n", "a\udcffb": b""}
    assert members(packed) == {"best": "0", "hard": "1", "last": "2", "a\udcffb": "0"}
    assert secret.read_text() == "of another"


def members(packed: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {it.name: it.type.decode() for it in archive.getmembers()}


def test_a_tree_that_becomes_a_link_is_not_followed(carrier: Carrier, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "model").mkdir(parents=True)
    (other / "model" / "weights").write_text("of another")
    (other / "output").mkdir()
    (other / "output" / "failure").write_text("of another")
    script = f'cd /; T="$(dirname "$SM_MODEL_DIR")"; mv "$T" "$T.moved"; ln -s {other} "$T"; exit 3'
    carrier.assign(JOB, script, request=saving(carrier))
    ended = carrier.end_of(JOB)
    assert ended["reason"].startswith("AlgorithmError: , exit")
    assert carrier.keys("results/") == []
    assert (other / "model" / "weights").read_text() == "of another"
    assert not (carrier.base / "members" / JOB).is_symlink()


def test_a_packed_archive_has_no_place_that_a_member_can_prepare(carrier: Carrier, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("of another")
    script = f'echo mine > "$SM_MODEL_DIR/m"; ln -s {victim} "$TMPDIR/packed.tar.gz"'
    carrier.assign(JOB, script, request=saving(carrier))
    assert carrier.end_of(JOB)["status"] == "Completed"
    assert victim.read_text() == "of another"


def test_a_fifo_that_takes_the_place_of_a_file_holds_nothing_up(carrier: Carrier) -> None:
    script = """
        cd "$SM_CHECKPOINT_DIR"; echo up
        while :; do echo x > c; rm c; mkfifo c; rm c; truncate -s 1T c; rm c; ln -s /dev/zero c; rm c; done
    """
    carrier.assign(JOB, script, request=saving(carrier), grace=0.2)
    carrier.until_says(JOB, "up")
    carrier.stop(JOB)
    assert carrier.end_of(JOB)["status"] == "Stopped"


def test_a_stop_is_noticed_while_the_copy_of_checkpoints_hangs(carrier: Carrier) -> None:
    """A stop reaches the member, and its saving ends, while files are refused by S3 again and again."""
    script = f'mkfifo "$SM_CHECKPOINT_DIR/c"; trap "" TERM; {UNTIL_STOPPED}'
    carrier.assign(JOB, script, request=saving(carrier), grace=0.2, saving=1)
    carrier.until_says(JOB, "up")
    carrier.stop(JOB)
    assert carrier.end_of(JOB)["status"] == "Stopped"


# --- parts, without a carrier ---------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Directory:
    (tmp_path / "tree").mkdir()
    return Directory.at(str(tmp_path / "tree"))


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "fifo": os.mkfifo,
    "link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_file_that_is_replaced_between_two_looks_is_not_read(
    tree: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, look = tmp_path / "tree" / "failure", os.stat
    path.write_text("mine")

    def replaced(name: Any, **options: Any) -> os.stat_result:
        found = look(name, **options)
        if name == "failure":
            path.unlink()
            REPLACEMENTS[kind](path)
        return found

    monkeypatch.setattr(os, "stat", replaced)
    with pytest.raises(OSError) as refused:  # noqa: PT011  (of the kernel, or of the second look)
        within(Pace(PATIENCE), lambda: tree.open_file(("failure",)))
    assert not isinstance(refused.value, LimitExceeded), "it does not wait"


@pytest.mark.parametrize("place", ["a", "checkpoints/a", "checkpoints/a/b"])
def test_a_restore_writes_nothing_through_links(s3_url: str, tree: Directory, tmp_path: Path, place: str) -> None:
    store, prefix = s3(s3_url), f"restore-{place.replace('/', '-')}"
    store.put(BUCKET, f"{prefix}/a/b", b"new")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("of another")
    path = tmp_path / "tree" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside / "b" if place.endswith("b") else outside)
    checkpoints = Checkpoints(store, tree, ("checkpoints",), f"s3://{BUCKET}/{prefix}", 1 << 20)
    with contextlib.suppress(OSError):
        checkpoints.restore(Bounds(1 << 20), Pace())
    assert (outside / "b").read_text() == "of another"
    assert [it.name for it in outside.iterdir()] == ["b"]


def test_a_restore_does_not_write_into_hard_links(s3_url: str, tree: Directory, tmp_path: Path) -> None:
    store = s3(s3_url)
    store.put(BUCKET, "hard/a", b"new")
    victim = tmp_path / "victim"
    victim.write_text("of another")
    (tmp_path / "tree" / "a").hardlink_to(victim)
    Checkpoints(store, tree, (), f"s3://{BUCKET}/hard", 1 << 20).restore(Bounds(1 << 20), Pace())
    assert victim.read_text() == "of another"
    assert (tmp_path / "tree" / "a").read_text() == "new"


def test_data_beyond_the_part_of_the_disk_is_not_brought(s3_url: str, tree: Directory, tmp_path: Path) -> None:
    store = s3(s3_url)
    for number in range(3):
        store.put(BUCKET, f"large/{number}", b"x" * 1000)
    source = {"S3Uri": f"s3://{BUCKET}/large"}
    with pytest.raises(LimitExceeded, match="carrier's disk"):
        fetch_channel(store, source, tree, ("train",), Bounds(2500), Pace())
    assert list((tmp_path / "tree").rglob("*")) == []


def test_an_object_larger_than_listed_is_not_written(tree: Directory, tmp_path: Path) -> None:
    target = Target.of(tree, ("a",), lambda: None, 10)
    with target.open("wb") as file, pytest.raises(LimitExceeded):
        file.write(b"x" * 11)
    target.give_up()
    assert list((tmp_path / "tree").iterdir()) == []


def test_removing_follows_no_link_needs_few_descriptors_and_has_an_end(tree: Directory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    home = tmp_path / "tree" / "member"
    home.mkdir()
    (home / "link").symlink_to(outside)
    os.mkfifo(home / "fifo")
    before = os.open(home, os.O_RDONLY)
    fd = before
    for _ in range(5000):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    with pytest.raises(LimitExceeded):
        remove(tree, "member", Pace(0).check)
    remove(tree, "member", Pace(PATIENCE).check)
    assert not home.exists()
    assert (outside / "kept").exists()
    home.symlink_to(outside)
    remove(tree, "member", Pace(PATIENCE).check)
    assert not home.is_symlink()
    assert (outside / "kept").exists()


def test_a_walk_does_not_leave_the_folder(tree: Directory, tmp_path: Path) -> None:
    (tmp_path / "tree" / "up").symlink_to("/")
    found = list(walk(tree, 10))
    assert [it.parts for it in found] == [("up",)]
    assert stat.S_ISLNK(found[0].status.st_mode)


def test_too_many_files_are_not_saved(
    s3_url: str, tree: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_queue.carrier_agent.transfer.MOST_FILES", 100)
    for number in range(101):
        (tmp_path / "tree" / str(number)).touch()
    with pytest.raises(LimitExceeded, match="more than 100 files"):
        send_packed(s3(s3_url), tree, f"s3://{BUCKET}/many", str(tmp_path), 1 << 20, Pace())
    with pytest.raises(LimitExceeded, match="more than 100 files"):
        Checkpoints(s3(s3_url), tree, (), f"s3://{BUCKET}/many", 1 << 20).sync(Pace())


@pytest.fixture
def growing(tmp_path: Path, tree: Directory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of 4 bytes that has 3 MiB once all files are listed."""
    path = tmp_path / "tree" / "growing"
    path.write_text("mine")

    def grows(folder: Directory, most: int) -> Iterator[Any]:
        yield from walk(folder, most)
        os.truncate(path, 3 << 20)

    monkeypatch.setattr("job_queue.carrier_agent.transfer.walk", grows)
    return path


def test_a_checkpoint_that_grew_after_it_was_counted_is_counted_again(
    s3_url: str, tree: Directory, growing: Path
) -> None:
    with pytest.raises(LimitExceeded, match="carrier's disk"):
        Checkpoints(s3(s3_url), tree, (), f"s3://{BUCKET}/grew", 1 << 20).sync(Pace())
    assert s3(s3_url).get(BUCKET, f"grew/{growing.name}", 1 << 30) is None


def test_a_result_that_grew_after_it_was_counted_is_packed_as_counted(
    s3_url: str, tree: Directory, tmp_path: Path, growing: Path
) -> None:
    send_packed(s3(s3_url), tree, f"s3://{BUCKET}/grew.tar.gz", str(tmp_path), 1 << 20, Pace())
    assert unpacked(s3(s3_url).get(BUCKET, "grew.tar.gz", 1 << 30) or b"") == {growing.name: b"mine"}


def test_a_file_that_grows_while_it_is_sent_is_given_up(tree: Directory, tmp_path: Path) -> None:
    path = tmp_path / "tree" / "log"
    path.write_text("mine")
    source = Source.of(tree.open_file(("log",)), lambda: None, 0)
    os.truncate(path, 1 << 30)
    with source.open() as file, pytest.raises(OSError, match="grew"):
        while file.read(1 << 20):
            pass


def test_names_beyond_the_part_of_the_disk_are_not_packed(s3_url: str, tree: Directory, tmp_path: Path) -> None:
    """Empty files use no bytes, but their names fill the archive."""
    for number in range(2_000):
        (tmp_path / "tree" / f"{number}{os.urandom(100).hex()}").touch()
    with pytest.raises(LimitExceeded, match="an archive of more than"):
        send_packed(s3(s3_url), tree, f"s3://{BUCKET}/names", str(tmp_path), 20_000, Pace())


def test_a_step_without_progress_and_a_step_after_a_stop_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("job_queue.carrier_agent.pace.time", SimpleNamespace(monotonic=lambda: now[0]))
    stalled = Pace(stall=0.3)
    for _ in range(4):
        now[0] += 0.1
        stalled.moved()
    now[0] += 0.4
    with pytest.raises(LimitExceeded):
        stalled.moved()
    stops: list[float] = []
    stopped = Pace(stopped_at=lambda: stops[0] if stops else None, after_stop=0.1)
    stopped.check()
    stops.append(now[0])
    stopped.check()
    now[0] += 0.2
    with pytest.raises(LimitExceeded):
        stopped.check()


def test_saving_has_an_end(s3_url: str, tree: Directory, tmp_path: Path) -> None:
    (tmp_path / "tree" / "zeros").touch()
    os.truncate(tmp_path / "tree" / "zeros", 1 << 40)
    with pytest.raises(LimitExceeded, match="time"):  # without a limit, it packs for hours
        pace = Pace(1)
        within(pace, lambda: send_packed(s3(s3_url), tree, f"s3://{BUCKET}/z", str(tmp_path), 1 << 41, pace))
    assert [it.name for it in tmp_path.iterdir()] == ["tree"]


def test_a_step_that_hangs_is_left_behind(tmp_path: Path) -> None:
    released = threading.Event()
    with pytest.raises(LimitExceeded):
        within(Pace(0.1), released.wait)
    released.set()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (S3Error("GET s3://bucket/secret: 403 AccessDenied", 403), "S3 answered 403 AccessDenied"),
        (S3Error("GET s3://bucket/secret: TimeoutError"), "S3 did not answer the request"),
        (S3Error("secret is not an address of the form s3://bucket/key"), "S3 did not answer the request"),
        (FileNotFoundError(2, "No such file or directory", "secret"), "No such file or directory"),
        (KeyError("secret"), "KeyError"),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_a_cause_has_no_word_of_a_request(error: Exception, told: str) -> None:
    assert cause(error) == told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("secret-program", "ClientError: the program of ContainerEntrypoint is not there"),
        ("/etc/passwd", "ClientError: the program of ContainerEntrypoint is not there"),
        (
            "/opt/ml/input/config/hyperparameters.json",
            "ClientError: the program of ContainerEntrypoint is not there",
        ),
    ],
)
def test_a_reason_has_no_word_of_the_command(carrier: Carrier, entry: str, told: str) -> None:
    carrier.assign(JOB, "", request={"AlgorithmSpecification": {"ContainerEntrypoint": [entry]}})
    assert carrier.end_of(JOB)["reason"] == told


def test_a_reason_has_no_word_of_an_address(carrier: Carrier) -> None:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/secret"}}
    request = {"InputDataConfig": [{"ChannelName": "hidden", "DataSource": source}]}
    carrier.assign(JOB, "echo never", request=request)
    assert carrier.end_of(JOB)["reason"] == "ClientError: InputDataConfig[0]: no object in S3 matches its S3Uri"


def test_a_reason_has_no_word_of_an_answer(carrier: Carrier) -> None:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://secret-bucket/secret"}}
    request = {"InputDataConfig": [{"ChannelName": "hidden", "DataSource": source}]}
    carrier.assign(JOB, "echo never", request=request)
    assert carrier.end_of(JOB)["reason"] == "ClientError: InputDataConfig[0]: S3 answered 404 NoSuchBucket"
