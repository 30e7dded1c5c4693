"""``smq ui`` in a real browser, on a local cloud: each page, each action, an outage in the middle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import requests
import yaml

from job_queue.adapters.dynamodb import DynamoDBTables
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.job import iso
from local_cloud.aws.ministack import SERVER
from local_cloud.aws.stack import LocalCloud
from tests.browser import PATIENT, Served, browsing, load, open_fleet, page_of, smq_ui, wait_connected
from tests.programs import command_of
from tests.system.conftest import FOREVER, System
from tests.waiting import has_ended, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
HISTORY_TABLE = "sagemaker-queue-history"
POLICY = """
pools:
- {name: p5, capacity: 2, instance_type: ml.p5.48xlarge}
projects:
- {name: vision, quota: {p5: 1}}
- {name: nlp, quota: {p5: 1}}
prices: {ml.p5.48xlarge: 98.32}
failure_rules:
- {action: retry free, match: "NCCL*", fresh_instances: true}
"""


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=2, policy=yaml.safe_load(POLICY)) as cloud:
        yield cloud


@contextmanager
def outage() -> Iterator[None]:
    """Nothing in the account answers meanwhile."""
    servers = [process for process in psutil.Process().children(recursive=True) if str(SERVER) in command_of(process)]
    assert servers
    for server in servers:
        server.suspend()
    try:
        yield
    finally:
        for server in servers:
            server.resume()


@pytest.fixture(scope="module")
def served(shared_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with smq_ui(shared_cloud.environment(), tmp_path_factory.mktemp("ui") / "log") as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with page_of(browser, served) as page:
        open_fleet(page, served.address)
        yield page


def submit(system: System, name: str, script: str = FOREVER, project: str = "vision", **more: Any) -> None:
    tags = [{"Key": key, "Value": str(value)} for key, value in {"project": project, **more}.items()]
    system.submit(name, script, Tags=tags)


def go(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).first.click()
    page.get_by_role("heading", name=name, exact=True).wait_for()


def shows(page: Page, *texts: str) -> None:
    for text in texts:
        page.get_by_text(text).filter(visible=True).first.wait_for()


def row(page: Page, job: str) -> Any:
    return page.locator(f'.ag-row[row-id="{job}"]')


def cell(page: Page, job: str, column: str) -> Any:
    return row(page, job).locator(f'[col-id="{column}"]')


def choose(page: Page, job: str) -> None:
    row(page, job).locator("input[type=checkbox]").first.check()


@pytest.mark.thorough
def test_an_empty_queue_teaches(page: Page, system: System) -> None:
    shows(
        page,
        "No job runs, waits or has ended recently.",
        "smq submit -- python train.py",
        "0 of 2 instances in use, 2 free",
    )


@pytest.mark.thorough
def test_the_fleet_shows_who_has_what(page: Page, system: System) -> None:
    for name in ("a1", "a2"):
        submit(system, name)
        cell(page, name, "instances").get_by_text("1 p5").wait_for()  # otherwise the page learns of its end in a minute
        system.wait_state(name, "running")
    submit(system, "urgent", project="nlp", priority=5)
    system.wait_state("urgent", "running")

    cell(page, "urgent", "instances").get_by_text("1 p5").wait_for()
    shows(page, "2 of 2 instances in use, 0 free")
    hovers = until(lambda: _with(_hovers(page), "urgent", "preempted for urgent"))
    assert any("running, 1 instance of p5" in hover for hover in hovers)
    page.locator(".js-plotly-plot .legendtext", has_text="Preempted").wait_for()


def _hovers(page: Page) -> list[str]:
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => (plot.data || [])"
        ".flatMap(trace => trace.hovertext || []))"
    )
    return found


def _with(hovers: list[str], *texts: str) -> list[str]:
    return hovers if all(any(text in hover for hover in hovers) for text in texts) else []


@pytest.mark.thorough
def test_jobs_are_held_released_moved_and_cancelled(page: Page, system: System) -> None:
    go(page, "Queue")
    for name in ("busy-1", "busy-2", "next", "later"):
        submit(system, name)
    cell(page, "next", "position").get_by_text("1").wait_for()
    cell(page, "later", "why").get_by_text(re.compile("vision|p5")).wait_for()

    choose(page, "next")
    page.get_by_role("button", name="Hold", exact=True).click()
    cell(page, "next", "state").get_by_text("pending, on hold").wait_for()
    assert system.job("next").held
    cell(page, "next", "when").get_by_text("after release").wait_for()
    page.get_by_role("button", name="Release").click()
    cell(page, "next", "state").get_by_text("pending", exact=True).wait_for()

    page.get_by_role("button", name="Priority").click()
    page.get_by_role("spinbutton").fill("-3")
    page.get_by_role("button", name="Change").click()
    cell(page, "next", "priority").get_by_text("-3").wait_for()
    cell(page, "next", "position").get_by_text("2").wait_for()

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel it").click()
    until(lambda: row(page, "next").count() == 0)
    assert system.state("next") == "stopped"

    page.get_by_label("filter").fill("later")
    until(lambda: row(page, "busy-1").count() == 0)
    cell(page, "later", "job").wait_for()
    page.get_by_label("filter").press("Enter")
    page.get_by_role("heading", name="later").wait_for()
    go(page, "Queue")
    page.get_by_text("include finished jobs").click()
    cell(page, "next", "state").get_by_text("stopped").wait_for()


@pytest.mark.thorough
def test_a_job_tells_all_about_itself(page: Page, system: System, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    script = (
        f"import os, time\nprint('<b>begins</b>', flush=True)\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.1)\nprint('goes on', flush=True)\n{FOREVER}"
    )
    submit(system, "told", script)
    submit(system, "other")
    system.wait_state("other", "running")
    submit(system, "waits")

    go(page, "Queue")
    cell(page, "waits", "job").get_by_role("link").click()
    shows(page, "Waiting, 1st in the queue", "Blocked by", "Show advice")
    page.get_by_role("link", name="told").click()
    shows(page, "Running, for", "<b>begins</b>")
    go_on.touch()
    shows(page, "goes on")
    page.get_by_role("tab", name="History").click()
    shows(page, "submitted")
    page.get_by_role("tab", name="Request").click()
    shows(page, "StoppingCondition")
    page.get_by_role("tab", name="Results").click()
    shows(page, "s3://system/checkpoints/told", "smq get told --checkpoints")
    page.get_by_role("button", name="List files").last.click()
    page.get_by_text(re.compile("No files|checkpoints/told/")).filter(visible=True).first.wait_for()

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel it").click()
    shows(page, "Stopped ")


@pytest.mark.thorough
def test_checkpoints_are_listed_on_request_with_the_command_for_each_step(page: Page, system: System) -> None:
    submit(system, "saves", "pass")
    system.wait_state("saves", "completed")
    evil = "<img src=x onerror=document.title='owned'>\u202e" + "x" * 300
    for key in ("step-5.pt", "step-6.pt", "step-7.pt.tmp", f"{evil}-step-4.pt"):
        system.cloud.client("s3").put_object(Bucket="system", Key=f"checkpoints/saves/{key}", Body=b"x" * 1500)
    load(page, f"{page.url}job/saves")
    page.get_by_role("tab", name="Results").click()
    shows(page, "s3://system/checkpoints/saves")
    assert page.get_by_text("step-5.pt").count() == 0, "S3 is listed only on request"
    page.get_by_role("button", name="List the checkpoints").click()
    shows(page, "4 checkpoints, 6.0 kB", "smq resubmit saves --from 6")
    for step, state in (("4", "complete"), ("5", "complete"), ("6", "resumes from it"), ("7", "incomplete: ")):
        found = page.locator(".ag-row").filter(has=page.locator('[col-id="step"]', has_text=re.compile(f"^{step}$")))
        found.locator('[col-id="state"]', has_text=state).wait_for()
        found.locator('[col-id="size"]', has_text="1.5 kB").wait_for()
        found.locator('[col-id="saved"]', has_text="ago").wait_for()
    shown = page.locator('.ag-row [col-id="name"]', has_text="<img src=x").inner_text()
    assert len(shown) == 200 and "\u202e" not in shown
    page.get_by_label("step", exact=True).click()
    page.get_by_role("option", name="5", exact=True).click()
    shows(page, "smq resubmit saves --from 5")
    assert page.title() != "owned"


@pytest.mark.thorough
def test_a_job_shows_its_deadlines(page: Page, system: System) -> None:
    submit(
        system,
        "timely",
        start_by="2099-01-01T00:00Z:next_pool",
        max_preemptions=3,
        max_total_runtime="2h",
        on_hang="requeue",
    )
    load(page, f"{page.url}job/timely")
    shows(page, "2099-01-01 00:00:00; if it has not, it may run in the further pools of its project")
    shows(page, "0 of 3; then it may use quota only", "of 2 hours used by ended attempts", "it is stopped, and resumes")


@pytest.mark.thorough
def test_a_failed_job_shows_class_remedy_and_log_lines(page: Page, system: System) -> None:
    submit(system, "oom", "import sys\nsys.exit('<b>RuntimeError</b>: CUDA out of memory. Tried to allocate 2 GiB')")
    system.wait_state("oom", "failed")
    go(page, "Queue")
    page.get_by_text("include finished jobs").click()
    cell(page, "oom", "why").get_by_text("gpu_memory:").wait_for()
    cell(page, "oom", "job").get_by_role("link").click()
    shows(page, "Failure of attempt 1", "gpu_memory", "Use a smaller batch", "<b>RuntimeError</b>: CUDA out of memory")
    page.get_by_role("tab", name="History").click()
    shows(page, "failed: gpu_memory")


@pytest.mark.thorough
def test_a_pool_is_drained_and_the_drain_is_ended(page: Page, system: System) -> None:
    submit(system, "moves")
    submit(system, "stays", project="nlp", preemptible="false")
    for name in ("moves", "stays"):
        system.wait_state(name, "running")
        cell(page, name, "instances").get_by_text("1 p5").wait_for()
    page.get_by_role("button", name="Drain p5", exact=True).click()
    shows(page, "For the jobs that run now: 1 job is stopped and waits again, 1 job runs to its end.")
    page.get_by_label("From").fill("soon")
    page.get_by_role("button", name="Drain", exact=True).click()
    shows(page, "'soon' is not a time")
    page.get_by_label("From").fill("7d")
    page.get_by_label("Reason").fill("<b>new</b> disks")
    shows(page, "1 job is at that time stopped and waits again")
    page.get_by_role("button", name="Drain", exact=True).click()
    shows(page, "p5 is drained from 2", "drained from 2", "<b>new</b> disks", "2 jobs left")
    assert system.state("moves") == "running"

    page.get_by_role("button", name="Change drain p5").click()
    page.get_by_label("From").fill("")
    page.get_by_role("button", name="Drain", exact=True).click()
    shows(page, "drained since 2", "jobs that it stops: preemptible jobs", "<b>new</b> disks")
    page.get_by_text("1 job left", exact=True).wait_for()
    assert (system.state("moves"), system.state("stays")) == ("preempted", "running")

    page.get_by_role("button", name="Undrain p5").click()
    page.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Undrain p5").click()
    page.get_by_role("button", name="End the drain").click()
    shows(page, "p5 is no longer drained: jobs start there again.")
    page.get_by_role("button", name="Drain p5", exact=True).wait_for()
    system.wait_state("moves", "running")


@pytest.mark.thorough
def test_projects_tell_who_borrows(page: Page, system: System) -> None:
    for name in ("b1", "b2"):
        submit(system, name)
        system.wait_state(name, "running")
    go(page, "Projects")
    shows(page, "vision uses 1 instance of p5 beyond its quota: nlp leaves 1 of its quota unused.")
    page.locator(".js-plotly-plot .legendtext", has_text="Borrowed").wait_for()


@pytest.mark.thorough
def test_usage_is_summed_up_and_downloaded(page: Page, system: System) -> None:
    submit(system, "short", "pass")
    system.wait_state("short", "completed")
    go(page, "Usage")
    shows(page, "Attempts that have ended since", "Jobs with low GPU use", "No job has a low GPU use.")
    cell(page, "vision", "jobs").get_by_text(re.compile("[1-9]")).wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("project,jobs,attempts,")
    page.get_by_label("by", exact=True).click()
    page.get_by_role("option", name="owner").click()
    until(lambda: row(page, "vision").count() == 0)
    page.get_by_label("by", exact=True).click()
    page.get_by_role("option", name="cause").click()
    row(page, "useful").wait_for()
    page.locator(".js-plotly-plot .legendtext", has_text="Useful").wait_for()
    cell(page, "vision", "percent").get_by_text(re.compile("[0-9]")).wait_for()


@pytest.mark.thorough
def test_what_if_there_were_more(page: Page, system: System) -> None:
    for name in ("c1", "c2"):
        submit(system, name)
        system.wait_state(name, "running")  # a preview is of this moment
    submit(system, "c3")
    go(page, "What if")
    slider = page.get_by_label("p5: n instances").first
    slider.locator("[tabindex]").press("ArrowRight")
    shows(page, "p5: 3 instances, now 2", "1 job would start now: c3.")
    assert system.queue.policy().policy["pools"][0]["capacity"] == 2
    page.get_by_text("The whole policy, as text").last.click()
    shows(page, "failure_rules:", "match: NCCL*", "fresh_instances: true")
    page.get_by_role("button", name="Try this text").last.click()
    shows(page, "Nothing would change for live jobs.")


@pytest.fixture(scope="module")
def history(shared_cloud: LocalCloud) -> Iterator[None]:
    """A history of ten days and nothing else: on each day eight short jobs have waited for four long ones."""
    tables = DynamoDBTables(shared_cloud.client("dynamodb"))
    attempts = AttemptHistory(tables, HISTORY_TABLE, 90 * 24 * 3600)
    first_day = datetime.now(UTC) - timedelta(days=11)
    jobs = [("train", n, 5 * 3600.0) for n in range(4)] + [("eval", n, 600.0) for n in range(8)]
    forget_history(shared_cloud)
    for day in range(10):
        times = [
            (f"{kind}-{day}-{n}", timedelta(days=day, seconds=n + 60 * (kind == "eval")), ran) for kind, n, ran in jobs
        ]
        tables.transact([attempts.write(past_attempt(name, first_day + after, ran)) for name, after, ran in times])
    yield
    forget_history(shared_cloud)


def forget_history(cloud: LocalCloud) -> None:
    client = cloud.client("dynamodb")
    for page in client.get_paginator("scan").paginate(TableName=HISTORY_TABLE):
        for row in page["Items"]:
            client.delete_item(TableName=HISTORY_TABLE, Key={"line": row["line"], "position": row["position"]})


def past_attempt(name: str, submitted: datetime, ran: float) -> AttemptRecord:
    launched, began, ended = (iso((submitted + timedelta(seconds=after)).timestamp()) for after in (0, 180, 180 + ran))
    return AttemptRecord(
        job=name,
        submission=name,
        attempt=1,
        training_job_name=f"{name}-qstamp-1",
        project="vision",
        owner="arn:aws:iam::000000000000:user/ann",
        outcome="completed",
        priority=0,
        slots={"p5": 1},
        instances={"ml.p5.48xlarge": 1},
        submitted=launched,
        waiting_since=launched,
        launched=launched,
        began=began,
        ended=ended,
    )


def simulations() -> list[psutil.Process]:
    """The processes in which `smq ui` simulates a history."""
    servers = [it for it in psutil.Process().children() if command_of(it)[2:4] == ["sagemaker_queue", "ui"]]
    below = [process for server in servers for process in server.children()]
    return [process for process in below if any("spawn_main" in word for word in command_of(process))]


@pytest.mark.thorough
def test_advice_on_settings(page: Page, system: System, history: None) -> None:
    from playwright.sync_api import expect

    go(page, "What if")
    page.get_by_role("button", name="Simulate the history").click()
    page.get_by_text(re.compile("Version [0-9]+ of the policy is in force. Simulated: 120 jobs in 9.0 days")).wait_for()
    cell(page, "as in force", "0").wait_for()
    cell(page, "1  order: shortest", "7").wait_for()
    page.locator('.ag-row [col-id="7"]', has_text="not 5 % better").first.wait_for()
    cell(page, "project vision", "1").get_by_text("120").wait_for()
    page.get_by_text(re.compile("with these lines in the policy .* less.:")).wait_for()
    assert page.locator(".nicegui-code code").inner_text() == "settings:\n  order: shortest\n"
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").last.click()
    assert Path(download.value.path()).read_text() == "settings:\n  order: shortest\n"

    page.get_by_role("button", name="Try as B").click()
    expect(page.get_by_text("Nothing would change for live jobs.")).to_be_in_viewport(timeout=PATIENT)
    page.get_by_text("The whole policy, as text").last.click()
    shows(page, "order: shortest")
    assert "settings" not in system.queue.policy().policy, "nothing is applied"

    go(page, "Fleet")
    go(page, "What if")
    cell(page, "as in force", "0").wait_for()


@pytest.mark.thorough
def test_a_history_that_is_too_small_for_advice(page: Page, system: System, history: None) -> None:
    go(page, "What if")
    page.get_by_role("button", name="1 week").click()
    page.get_by_role("button", name="Simulate the history").click()
    shows(page, "of the policy is in force. History: ", "Too little history for advice: 100 finished jobs")
    assert page.get_by_role("button", name="Try as A").count() == 0


@pytest.mark.thorough
def test_simulations_are_cancelled(page: Page, system: System, history: None, browser: Browser, served: Served) -> None:
    go(page, "What if")
    page.get_by_role("button", name="Simulate the history").click()
    (process,) = until(simulations)
    page.get_by_text(re.compile("simulations, .* of at most 5m00s")).wait_for()
    process.suspend()
    with page_of(browser, served) as other:
        load(other, f"{served.address}what-if")
        other.get_by_role("button", name="Simulate the history").click()
        shows(other, "Another tab of smq ui simulates the history")
    page.get_by_role("button", name="Cancel").click()
    shows(page, "Cancelled.")
    until(lambda: not simulations())


@pytest.mark.thorough
def test_simulations_end_some_time_after_their_tab(
    system: System, history: None, browser: Browser, served: Served
) -> None:
    with page_of(browser, served) as page:
        load(page, f"{served.address}what-if")
        page.get_by_role("button", name="Simulate the history").click()
        (process,) = until(simulations)
        process.suspend()
    until(lambda: has_ended(process.pid))


@pytest.mark.thorough
def test_an_outage_is_told_and_outlived(page: Page, system: System) -> None:
    go(page, "Queue")
    submit(system, "before")
    cell(page, "before", "state").get_by_text("running").wait_for()
    with outage():
        shows(page, "No answer for")
        choose(page, "before")
        page.get_by_role("button", name="Hold", exact=True).click()
        shows(page, "cannot be reached", "No news since")
        cell(page, "before", "job").wait_for()
    page.locator(".smq-outage").wait_for(state="hidden")
    submit(system, "after")
    cell(page, "after", "state").wait_for()


@pytest.mark.thorough
def test_what_is_not_there_is_said(page: Page, served: Served) -> None:
    page.goto(f"{served.address}nonsense")
    shows(page, "There is no page /nonsense.")
    page.goto(f"{served.address}job/nobody")
    shows(page, "The queue has no job of this name")


@pytest.mark.thorough
def test_light_and_dark_and_keys(page: Page, system: System) -> None:
    from playwright.sync_api import TimeoutError  # noqa: PLC0415  # not on every machine

    assert "body--dark" not in (page.locator("body").get_attribute("class") or "")
    for _ in range(20):  # NiceGUI drops a click while it sends a part of the page again
        page.get_by_role("button", name="light or dark").click()
        with suppress(TimeoutError):
            page.locator("body.body--dark").wait_for(timeout=10_000)
            break
    page.reload()
    wait_connected(page)
    page.locator("body.body--dark").wait_for()
    page.get_by_role("heading", name="Fleet").wait_for()
    page.keyboard.press("2")
    page.get_by_role("heading", name="Queue").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("12")  # at once; a filter, and no page
    assert page.get_by_label("filter").input_value() == "12"


@pytest.mark.thorough
def test_nobody_else_gets_in(served: Served, browser: Browser) -> None:
    cookies = {served.cookie["name"]: served.cookie["value"]}
    assert requests.get(served.address, timeout=PATIENT).status_code == 403
    assert requests.post(f"{served.base}enter", data={"token": "wrong"}, timeout=PATIENT).status_code == 403
    assert requests.get(f"{served.base}queue", cookies=cookies, timeout=PATIENT).status_code == 403
    assert requests.get(served.address, cookies=cookies, timeout=PATIENT).status_code == 200
    for headers in (
        {"Origin": "https://evil.example"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "X-Forwarded-Prefix": "/x"},
        {"Origin": "null"},
    ):
        refused = requests.get(served.address, cookies=cookies, headers=headers, timeout=PATIENT)
        assert refused.status_code == 403, headers
    with page_of(browser) as page:
        page.goto("data:text/html,<p>another page")
        place = served.address.partition("//")[2]
        closed = page.evaluate(
            f"new Promise(done => {{ const s = new WebSocket('ws://{place}_nicegui_ws/socket.io/"
            "?EIO=4&transport=websocket'); s.onclose = () => done('closed'); s.onmessage = () => done('open') })"
        )
        assert closed == "closed"
