"""`python -m job_queue.simulation`: traces as files, what is printed, and what is refused."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from job_queue.simulation.__main__ import main
from job_queue.simulation.command import simulate
from job_queue.simulation.options import SimulationOptions
from job_queue.simulation.report import HEADERS, readable

HEADER = "job_id,submit_s,duration_s,gpus,nodes,group,user\n"
TRACE = HEADER + "one,0,1000,8,1,vision,ada\ntwo,100,1000,3,1,nlp,bob\nthree,200,100,16,2,vision,ada\n"
PATIENTLY = ("--minutes", "1440")  # the most that is allowed, so that a slow machine has time enough
POLICY = """
pools: [{name: p5, capacity: 2}]
projects: [{name: vision, quota: {p5: 1}}, {name: nlp, quota: {p5: 1}}]
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def simulated(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_jobs_take_whole_instances_and_wait_for_them(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulated(capsys, trace, "--capacity", 2, "--priorities", "1", "--provisioning", 0)
    (policy,) = result["policies"]
    assert policy["capacity"] == {"default": 2}
    assert policy["overall"]["wait_longest"] == 900, "three needs both instances, and two ends at 1,100"
    assert {name: it["jobs"] for name, it in policy["by"]["size"].items()} == {"1 instance": 2, "2 to 7": 1}


def test_shared_is_shown_beside_whole(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulated(capsys, trace, "--capacity", 2, "--shared", "--priorities", "1", "--provisioning", 0)
    whole, shared = result["policies"]
    assert (whole["policy"], shared["policy"]) == ("no policy", "no policy, shared")
    assert {name: it["jobs"] for name, it in whole["by"]["size"].items()} == {"1 instance": 2, "2 to 7": 1}
    assert {name: it["jobs"] for name, it in shared["by"]["size"].items()} == {
        **{"a part of 1": 1, "1 instance": 1, "2 to 7": 1}
    }
    assert whole["gpus"] == shared["gpus"] == 16
    assert 0 < whole["gpus_at_work"] < 16
    assert main([str(trace), "--capacity", "2", "--shared"]) == 0
    shown = capsys.readouterr().out
    assert "no policy, shared (instances: 2 of default; GPUs at work:" in shown


def test_a_policy_may_say_itself_which_pools_are_shared(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("capacity: 2", "capacity: 3, shared: true, gpus: 4"))
    (policy,) = simulated(capsys, trace, "--policy", path)["policies"]
    assert policy["by"]["size"]["a part of 1"]["jobs"] == 1, "two, of three GPUs"
    assert policy["gpus"] == 3 * 4


def test_a_trace_may_be_compressed(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compressed = tmp_path / "trace.csv.gz"
    compressed.write_bytes(gzip.compress(TRACE.encode()))
    one, other = (simulated(capsys, path, "--capacity", 2) for path in (trace, compressed))
    assert one["policies"] == other["policies"]


def test_the_same_seed_draws_the_same_priorities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"job{number},{number},100,8,1,,\n" for number in range(40))
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + rows)
    first, again, other = (simulated(capsys, path, "--seed", seed)["policies"] for seed in (1, 1, 2))
    assert first == again != other


def test_policies_side_by_side(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, capacity in (("small.yaml", 2), ("large.yaml", 4)):
        files.append(tmp_path / name)
        files[-1].write_text(POLICY.replace("capacity: 2", f"capacity: {capacity}"))
    page = tmp_path / "page.html"
    assert main([str(trace), "--policy", str(files[0]), "--compare", str(files[1]), "--html", str(page)]) == 0
    shown, notes = capsys.readouterr()
    assert notes == f"{page} is written.\n"
    assert "small.yaml" in shown and "large.yaml" in shown
    assert "project vision" in shown
    assert "which is the worst of" in shown
    assert "<svg" in page.read_text() and "large.yaml" in page.read_text()
    small, large = simulated(capsys, trace, "--policy", files[0], "--compare", files[1])["policies"]
    assert large["overall"]["wait"] < small["overall"]["wait"]
    assert small["rho"].keys() == {"nlp", "vision"}


def test_rho_compares_with_a_project_alone_under_the_same_settings_of_interactive_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, policy = tmp_path / "trace.csv", tmp_path / "policy.yaml"
    notebooks = "".join(f"lab{number},{number},3600,8,vision,ada,true\n" for number in range(3))
    path.write_text(
        f"job_id,submit_s,duration_s,gpus,group,user,interactive\n{notebooks}train,5,3600,8,nlp,bob,false\n"
    )
    policy.write_text(
        "pools: [{name: p5, capacity: 4}]\ninteractive: {max_per_owner: 3}\n"
        "projects: [{name: vision, quota: {p5: 3}}, {name: nlp, quota: {p5: 1}}]\n"
    )
    (outcome,) = simulated(capsys, path, "--policy", policy)["policies"]
    assert outcome["rho"] == {"vision": 1.0, "nlp": 1.0}


def test_projects_whose_jobs_take_no_time_have_no_rho(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, policy = tmp_path / "trace.csv", tmp_path / "policy.yaml"
    path.write_text(HEADER + "one,0,0,8,1,vision,ada\ntwo,0,60,8,1,nlp,bob\n")
    policy.write_text(POLICY)
    (outcome,) = simulated(capsys, path, "--policy", policy, "--provisioning", 0)["policies"]
    assert outcome["rho"] == {"nlp": 1.0}


def test_a_pool_of_a_training_plan_needs_a_capacity(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "plan.yaml"
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan"
    policy.write_text(POLICY.replace("capacity: 2", f"training_plan: '{plan}'"))
    assert main([str(trace), "--policy", str(policy)]) == 2
    assert capsys.readouterr().err == (
        "smq: plan.yaml: pool p5 has no capacity, and a simulation does not read its training plan: "
        "add the plan's number of instances as the capacity of the pool\n"
    )
    (outcome,) = simulated(capsys, trace, "--policy", policy, "--capacity", 3)["policies"]
    assert outcome["capacity"] == {"p5": 3}


def test_each_group_may_have_its_quota(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = simulated(capsys, trace, "--capacity", 3, "--groups")
    assert set(result["policies"][0]["by"]["project"]) == {"nlp", "vision"}


def test_a_max_runtime_lets_small_jobs_pass_a_gang_that_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept slots are used by a job that ends before the gang can start; that is known of runtimes or not."""
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "long,0,20000,8,1,,\ngang,10,100,16,2,,\nshort,3000,100,8,1,,\n")
    policy = tmp_path / "bounded.yaml"
    policy.write_text("{pools: [{name: p5, capacity: 2}], projects: [{name: a}], settings: {backfill: bounded}}")
    plain = simulated(capsys, path, "--policy", policy, "--priorities", 1, "--runtimes", "none")
    told = simulated(capsys, path, "--policy", policy, "--priorities", 1, "--runtimes", "max")
    assert told["policies"][0]["overall"]["wait"] < plain["policies"][0]["overall"]["wait"] / 1.5


def test_a_max_runtime_of_the_trace_is_what_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gang's window is passed by who says that it ends in time, and not by who says that it may run for long."""
    rows = "long,0,20000,8,21000\ngang,10,100,16,200\nshort,3000,100,8,{}\n"
    waits = []
    for longest in (400, 90000):
        path = tmp_path / f"trace{longest}.csv"
        path.write_text("job_id,submit_s,duration_s,gpus,max_runtime_s\n" + rows.format(longest))
        result = simulated(capsys, path, "--capacity", 2, "--priorities", 1, "--runtimes", "max")
        waits.append(result["policies"][0]["by"]["size"]["1 instance"]["wait"])
    assert waits[0] < waits[1]


def test_order_of_shortest_by_what_the_trace_says_and_by_what_it_has_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"old{n},{n},100,8,1,,ada\npast{n},{n},3000,8,1,,bob\n" for n in range(6))
    rows += "".join(f"long{n},{30000 + n},3000,8,1,,bob\nshort{n},{30010 + n},100,8,1,,ada\n" for n in range(6))
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + rows)
    waits = {}
    for order, runtimes in (
        ("submission", "predicted"),
        ("shortest", "none"),
        ("shortest", "predicted"),
        ("shortest", "oracle"),
    ):
        arguments = ("--capacity", 1, "--priorities", 1, "--order", order, "--runtimes", runtimes)
        waits[order, runtimes] = simulated(capsys, path, *arguments)["policies"][0]["overall"]["wait"]
    assert waits["shortest", "none"] == waits["submission", "predicted"]
    assert waits["shortest", "oracle"] <= waits["shortest", "predicted"] < waits["shortest", "none"]


def test_priorities_of_the_trace_are_used_if_it_has_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,priority\none,0,100,8,7\ntwo,0,100,8,\n")
    for arguments, priorities in (((), {"7", "0"}), (("--priorities", "1"), {"1"})):
        (policy,) = simulated(capsys, path, *arguments)["policies"]
        assert set(policy["by"]["priority"]) == priorities
    path.write_text("job_id,submit_s,duration_s,gpus,priority\none,0,100,8,\n")
    assert simulated(capsys, path)["priorities"] == [10, 60, 30]


def test_projects_may_be_mapped_and_left_out(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("nlp", "audio"))
    mapped = simulated(capsys, trace, "--policy", policy, "--map-project", "nlp=audio")["policies"][0]
    assert {name: it["jobs"] for name, it in mapped["by"]["project"].items()} == {"vision": 2, "audio": 1}
    left = simulated(capsys, trace, "--policy", policy, "--exclude-project", "nlp")["policies"][0]
    assert {name: it["jobs"] for name, it in left["by"]["project"].items()} == {"vision": 2}


def test_tables_fit_the_terminal_and_durations_are_readable(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / f"{'long' * 20}.yaml"
    policy.write_text(POLICY)
    options = SimulationOptions(trace, policy=policy, compare=(policy,))
    for width in (60, 80, 100):
        assert simulate(options, width=width) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= width
        assert "Left out, as the terminal is narrow: " in shown
    assert simulate(options) == 0
    shown = capsys.readouterr().out
    assert "provisioning 3m00s, stopping 2m00s, checkpoints each 30m00s" in shown
    assert all(header in shown for header in HEADERS) and "Left out" not in shown
    assert [readable(seconds) for seconds in (0, 59.6, 95, 3600, 90061, 356_400)] == [
        *("0s", "1m00s", "1m35s", "1h00m", "1d1h", "4d3h")
    ]


def test_advice_on_a_trace(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(trace), "--advise", *PATIENTLY]) == 1
    assert "Too little history for advice" in capsys.readouterr().out
    path = tmp_path / "week.csv"
    path.write_text(HEADER + "".join(f"job{n},{n * 5000},{60 * (1 + n % 2)},8,1,,\n" for n in range(100)))
    assert main([str(path), "--advise", "--capacity", "1", "--json", *PATIENTLY]) == 1
    assert json.loads(capsys.readouterr().out)["insufficient"] == "WAITING"
    assert main([str(path), "--advise", "--shared"]) == 2
    assert "--advise compares settings of one policy: leave out --compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column job_id in its first line, but nothing"),
        ("job_id,submit_s,gpus\n", "has no column duration_s in its first line, but job_id, submit_s, gpus"),
        (HEADER, "has no jobs"),
        (f"job_id,{'x' * 140_000}\n", "trace.csv, line 1: field larger than field limit (131072)"),
        (HEADER + f"one,0,5,8,1,,{'x' * 140_000}\n", "trace.csv, line 2: field larger than field limit (131072)"),
        (HEADER + "one,0,many,8,1,,\n", "line 2: duration_s must be a number from 0, not 'many'"),
        (HEADER + "one,-1,5,8,1,,\n", "line 2: submit_s must be a number from 0, not '-1'"),
        (HEADER + "one,nan,5,8,1,,\n", "line 2: submit_s must be a number from 0, not 'nan'"),
        (HEADER + "one,0\n", "line 2: duration_s must be a number from 0, not ''"),
        (HEADER + ",0,5,8,1,,\n", "line 2: job_id is empty"),
        (HEADER + "one,0,5,8,1,,\none,0,5,8,1,,\n", "has 2 jobs with the job_id 'one'"),
    ],
)
def test_what_is_no_trace_is_refused(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    assert main([str(path)]) == 2
    assert f"{message}\n" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compressed = gzip.compress(TRACE.encode())
    damaged = "trace.csv is damaged and cannot be decompressed: compress or copy it again"
    path = tmp_path / "trace.csv"
    for content, message in (
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (gzip.compress(b"\xff\xfe\x00"), "is not UTF-8 text"),
        (compressed[:30], damaged),
        (compressed[:10] + b"\xff" * 20, damaged),
    ):
        path.write_bytes(content)
        assert main([str(path)]) == 2
        assert f"{message}\n" in capsys.readouterr().err


def test_a_policy_that_does_not_fit_is_refused(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.yaml"
    for content, message in (
        (
            POLICY.replace("nlp", "audio"),
            "the policy has no project nlp (1 job): add --map-project 'nlp=NAME' to",
        ),
        ("pools: 3", "policy.yaml.pools: must be a list, not 3"),
        ("a: [", "is neither YAML nor JSON"),
        ("pools: []\nprojects: []", "has no project or no pool"),
    ):
        policy.write_text(content)
        assert main([str(trace), "--policy", str(policy)]) == 2
        assert message in capsys.readouterr().err
    assert main([str(trace), "--policy", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--load", "2"),
        ("--capacity", "0"),
        ("--priorities", "0,0"),
        ("--runtimes", "known"),
        ("--order", "longest"),
        ("--stopping", "-1"),
        ("--map-project", "old"),
        ("--minutes", "0"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    option: str, value: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(trace), option, value])
    assert ended.value.code == 2
    assert f"argument {option}: must" in capsys.readouterr().err


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_wiped_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"job{number},{number},100,8,1,,\n" for number in range(5)))
    monkeypatch.setattr("job_queue.simulation.command.PROGRESS_INTERVAL", -1)
    screen = Screen()
    assert simulate(SimulationOptions(path), screen) == 0
    assert "\rno policy: Simulation: 3 of 5 jobs have ended\x1b[K" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_progress_is_shown_at_once_and_a_name_controls_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "trace\x1b[2J.csv"
    path.write_text(TRACE)
    screen = Screen()
    assert simulate(SimulationOptions(path), screen) == 0
    assert screen.getvalue().startswith("\rReading trace?[2J.csv\x1b[K")


def test_an_interruption_is_said(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("job_queue.simulation.command.read_trace", interrupted)
    assert main([str(trace)]) == 130
    assert capsys.readouterr().err == "smq: interrupted; nothing was written\n"
