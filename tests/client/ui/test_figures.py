"""The figures show what there is, in words that Plotly takes for words."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from api_contract.history import PastAttempt
from api_contract.models import (
    Identity,
    JobDetail,
    JobSummary,
    Pause,
    PoolStatus,
    ProjectStatus,
    QueueStatus,
    Transition,
)
from api_contract.preview import PreviewAnswer, ProjectPreview
from sagemaker_queue.ui.view import View

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
HOSTILE = "<a href='https://evil.example'>x</a>"
STATUS = QueueStatus(
    pools=(
        PoolStatus("p5", capacity=2, training_plan="arn:plan", opens=NOW - HOUR, closes=NOW + HOUR),
        PoolStatus("c6", capacity=1),
    ),
    active=(JobSummary("job1", "running", project=HOSTILE, slots={"p5": 1}, started=NOW - HOUR),),
    projects=(ProjectStatus(HOSTILE, quota={"p5": 1}, used={"p5": 2}, share={"p5": 1}), ProjectStatus("nlp")),
)
PAST = (
    PastAttempt(
        "job0",
        1,
        outcome="preempted",
        project="gone",
        slots={"p5": 1},
        launched=NOW - 3 * HOUR,
        ended=NOW - 2 * HOUR,
        made_room_for="job1",
    ),
)


@pytest.fixture(params=[False, True], ids=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> Any:
    from sagemaker_queue.ui.figures.style import Theme

    return Theme(request.param)


def text_of(figure: Any) -> str:
    text = figure.to_json()
    json.loads(text)
    assert "<a href" not in text and "\\u003ca href" not in text, "Plotly would make it a link"
    return str(text)


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_the_fleet(theme: Any) -> None:
    from sagemaker_queue.ui.figures.fleet_figures import fleet_figure

    figure = fleet_figure(STATUS, PAST, NOW, theme)
    text_of(figure)
    found = traces(figure)
    assert {"Preempted", "Reserved (training plan)", "gone"} <= found.keys()
    assert found["Reserved (training plan)"].marker.pattern.shape == "/"
    assert "preempted for job1, 1 instance of p5" in found["gone"].hovertext[0]
    assert [customdata[0] for customdata in found["gone"].customdata] == ["job0"]
    assert list(figure.layout.yaxis.ticktext) == ["p5: 2", "c6"]


@pytest.mark.parametrize("projects", [["nlp"], ["nlp", "vision"], list("klmnopqrstuvw")])
def test_a_project_that_is_gone_looks_like_no_present_one(theme: Any, projects: list[str]) -> None:
    from sagemaker_queue.ui.figures.fleet_figures import fleet_figure

    active = tuple(
        JobSummary(f"of-{name}", "running", project=name, slots={"p5": 1}, started=NOW - HOUR) for name in projects
    )
    pools = (PoolStatus("p5", capacity=2 * len(projects)),)

    def looks(past: tuple[PastAttempt, ...]) -> dict[str, Any]:
        status = QueueStatus(pools=pools, active=active, projects=tuple(map(ProjectStatus, projects)))
        found = traces(fleet_figure(status, past, NOW, theme))
        return {
            name: (found[name].marker.color, found[name].marker.pattern.shape)
            for name in {*projects, "gone"} & {*found}
        }

    with_gone = looks(PAST)
    assert len(set(with_gone.values())) == len(projects) + 1
    assert looks(()) == {name: look for name, look in with_gone.items() if name != "gone"}


def test_a_fleet_without_pools_says_so(theme: Any) -> None:
    from sagemaker_queue.ui.figures.fleet_figures import NOTHING, fleet_figure

    figure = fleet_figure(QueueStatus(), (), NOW, theme)
    assert NOTHING in [note.text for note in figure.layout.annotations]


def test_the_timeline_of_a_job(theme: Any) -> None:
    from sagemaker_queue.ui.figures.timeline import timeline_figure, timeline_text

    history = (
        Transition("pending", NOW - 3 * HOUR, 1, "submitted"),
        Transition("running", NOW - 2 * HOUR, 1),
        Transition("preempted", NOW - HOUR, 1, f"made room for {HOSTILE}"),
        Transition("completed", NOW, 2),
    )
    job = JobDetail("job1", "completed", entry_time=NOW - 3 * HOUR, state_since=NOW, history=history)
    found = traces(timeline_figure(job, NOW, theme))
    text_of(timeline_figure(job, NOW, theme))
    assert found.keys() == {"pending", "running", "preempted", "completed"}
    assert list(found["running"].x) == [3_600_000]
    assert timeline_text(job) == "job1: completed, 0 attempts in 3h00m since it was submitted."


def test_shares_and_use(theme: Any) -> None:
    from sagemaker_queue.ui.figures.sharing import shares_figure, use_figure

    shares = shares_figure(STATUS, theme)
    text_of(shares)
    assert list(traces(shares)["Used, within the quota"].x) == [1] and list(traces(shares)["Borrowed"].x) == [1]
    use = traces(use_figure(STATUS, PAST, NOW - 4 * HOUR, NOW, theme))
    levels = dict(zip(use["gone"].x, use["gone"].y))
    assert levels[NOW - 3 * HOUR] == 1 and levels[NOW - 2 * HOUR] == 0


def test_usage_and_waits(theme: Any) -> None:
    from sagemaker_queue.ui.figures.usage_figures import causes_figure, usage_figure
    from sagemaker_queue.ui.figures.waits import waits_figure
    from sagemaker_queue.workflows.usage.causes import Cause

    hours = {HOSTILE: {"in_quota_hours": 2.0, "borrowed_hours": 1.0, "lost_hours": 0.5}}
    usage = usage_figure(hours, theme)
    text_of(usage)
    assert list(traces(usage)["Borrowed"].x) == [1.0]
    days = {f"2026-01-{day:02}": hours[HOSTILE] for day in range(1, 32)} | {
        f"2026-02-{day:02}": hours[HOSTILE] for day in range(1, 29)
    }
    assert list(traces(usage_figure(days, theme, by_day=True))["Borrowed"].y)[-1] == "2026-02-28"
    assert list(traces(usage_figure(days, theme))["Borrowed"].y)[0] == "2026-01-01"
    causes = causes_figure({HOSTILE: {Cause.USEFUL: 3.0, Cause.FAILURE: 1.0}}, theme)
    text_of(causes)
    assert {name: list(trace.x) for name, trace in traces(causes).items()} == {
        "Useful": [3.0],
        "Lost to failures": [1.0],
    }
    answer = PreviewAnswer(projects=(ProjectPreview(HOSTILE, wait_now=7200, wait_then=3600),))
    waits = waits_figure({"B": answer}, theme)
    text_of(waits)
    assert list(traces(waits)["under B"].x) == [1.0] and list(traces(waits)["now"].x) == [2.0]


def test_002_a_quota_below_running_jobs_is_told_on_the_page_with_what_applying_it_takes() -> None:
    from sagemaker_queue.ui.pages.what_if import preview_sentences

    lowered = "The quota of the project a would fall from 2 to 1 p5, and its running non-preemptible jobs hold 2: x, y."
    _, told, force = preview_sentences(PreviewAnswer(in_use=(lowered,)))
    assert told == lowered
    assert "--force" in force
    assert preview_sentences(PreviewAnswer()) == ["Nothing would change for live jobs."]
    kept = PreviewAnswer(kept_waiting=("a",), more_kept_waiting=300)
    assert preview_sentences(kept)[0].startswith("301 jobs would not start now: a")


def test_projects_look_different_however_many_there_are() -> None:
    from sagemaker_queue.ui.figures.style import paints

    found = paints(f"project-{number}" for number in range(25))
    assert len(set(found.values())) == 25
    assert paints(["b", "a"]) == paints(["a", "b"])


def test_the_card_of_a_pool_says_why_it_backs_off() -> None:
    from sagemaker_queue.ui.pages.fleet import _remarks

    late = "SageMaker still counts 8 of 8 instances of ml.p5.48xlarge as in use, and the queue knows of 0."
    until = NOW + timedelta(seconds=15)
    pool = PoolStatus("p5", capacity=8)
    for pause, said in (
        (Pause("p5", until=until, quota_lag=late), late[:-1]),
        (Pause("p5", until=until, at_fault="The plan has expired."), "SageMaker refuses: The plan has expired"),
        (Pause("p5", until=until, unreachable=True), "its region or account does not respond"),
        (Pause("p5", until=until), "SageMaker had no instances"),
    ):
        view = View(NOW, QueueStatus((pool,), pauses=(pause,)), (), (), Identity("ann"))
        assert _remarks(pool, view, NOW) == [f"{said}; next try in 15s"]
