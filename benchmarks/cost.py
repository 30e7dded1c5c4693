"""Monthly cost of the queue, from counted calls: `python benchmarks/cost.py [--keep]`.

The queue's own functions run in simulated time (`simulated_cloud.py`). Three situations are counted: a minute without a
job, a whole job, and an hour in which a person follows a waiting job. The tables are printed.
`--keep` stores the counted units as the reference of `tests/unit/test_cost.py`, and writes the tables to
docs/reference/stack.md.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "client")]

from samtranslator.yaml_helper import yaml_parse  # noqa: E402

from benchmarks import prices  # noqa: E402
from benchmarks.followed_load import Polling, add  # noqa: E402
from benchmarks.simulated_cloud import SimulatedCloud  # noqa: E402
from local_cloud.dynamodb.key_throttle import KeyAccess  # noqa: E402

REFERENCE = Path(__file__).with_name("cost_reference.json")
PAGE = ROOT / "docs" / "reference" / "stack.md"
BEGIN, END = "<!-- costs: python benchmarks/cost.py --keep -->", "<!-- end of costs -->"
MINUTES = 20  # time in which the counted jobs are submitted
JOBS = 14  # jobs submitted in these minutes: about 1,000 a day
RUN_SECONDS = 1200.0
# SecondaryStatus of a job -> seconds from the job's submission until SageMaker sends an event about this status.
STAGES = {"Starting": 20.0, "Downloading": 200.0, "Training": 260.0, "Uploading": RUN_SECONDS - 30}
SLOTS = 16
WATCHED_SECONDS = 3600.0
JOBS_A_MONTH = 1000 * 30
WATCHED_HOURS = 50 * 8 * 22  # 50 people, 8 hours a day, 22 days a month
METRICS = 5, 6  # numbers of metrics: of the queue, of one project
TICKS = prices.HOURS * 60
DOLLARS: Mapping[str, float] = {
    "API requests": prices.API_REQUEST,
    "invocations": prices.LAMBDA_REQUEST,
    "traces": prices.TRACE,
    "GB-seconds": prices.LAMBDA_ARM_GB_SECOND,
    "read units": prices.READ_UNIT,
    "write units": prices.WRITE_UNIT,
    "events": prices.EVENT,
    "log bytes": prices.LOG_GB / 1e9,
}
"""The price of each counted unit."""

Units = dict[str, float]


@dataclass(frozen=True)
class Counted:
    """Units by situation."""

    minute: Units  # a minute without a job
    job: Units  # a job from its submission to its end
    hour: Units  # added by a person who follows a waiting job for an hour

    def as_json(self) -> dict[str, Any]:
        """Return the units, rounded to four significant digits."""
        return {name: {unit: float(f"{count:.4g}") for unit, count in vars(self)[name].items()} for name in vars(self)}


def dollars(units: Mapping[str, float]) -> float:
    """Return the price of units in dollars."""
    return sum(count * DOLLARS[unit] for unit, count in units.items())


class Meter:
    """A count of the units that a cloud uses after the meter was created."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self._before = self._all()

    def used(self) -> Units:
        """Return the units since the meter was created."""
        now = self._all()
        return {unit: now[unit] - self._before[unit] for unit in DOLLARS}

    def _all(self) -> Units:
        counts, tables = self._cloud.counts, self._cloud.tables
        return {
            "API requests": counts["API GET"] + counts["API POST"],
            "invocations": counts["Lambda queue"] + counts["Lambda reads"],
            "traces": counts["Lambda queue"],  # ReadFunction records no traces
            "GB-seconds": sum(self._cloud.seconds.values()),
            "read units": tables.units[KeyAccess.READ],
            "write units": tables.units[KeyAccess.WRITE],
            "events": counts["EventBridge events"],
            "log bytes": counts["log bytes"],
        }


def minutes(cloud: SimulatedCloud, count: float) -> None:
    """Simulate `count` minutes. The schedule fires once in each minute."""
    for number in range(int(count)):
        cloud.timeline.spawn(cloud.tick, 60.0 * number + 30)
    cloud.timeline.run(cloud.timeline.now + 60 * count)


def idle_minute() -> Units:
    """Return the units of a minute without a job."""
    cloud = SimulatedCloud(slots=SLOTS, idle_minutes=0)
    with cloud.running():
        minutes(cloud, 2)
        meter = Meter(cloud)
        minutes(cloud, 5)
        return {unit: count / 5 for unit, count in meter.used().items()}


def job(minute: Units) -> Units:
    """Return the units of a job from its submission to its end, beside other jobs.

    :param minute: the units of a minute without a job, which are subtracted.
    """
    cloud = SimulatedCloud(slots=SLOTS, idle_minutes=0)
    with cloud.running():
        meter = Meter(cloud)
        for number in range(JOBS):
            at = number * 60.0 * MINUTES / JOBS
            name = f"job{number:05}"
            cloud.timeline.spawn(partial(add, cloud, name, number), at)
            for secondary, after in STAGES.items():
                cloud.timeline.spawn(partial(cloud.progress, f"{name}-qstamp-1", secondary), at + after)
            cloud.timeline.spawn(partial(cloud.end, f"{name}-qstamp-1"), at + RUN_SECONDS)
        in_all = MINUTES + RUN_SECONDS / 60
        minutes(cloud, in_all)
        left = [name for name, one in cloud.training.jobs.items() if not one.ended]
        assert not left, left  # noqa: S101
        return {unit: (count - in_all * minute[unit]) / JOBS for unit, count in meter.used().items()}


def followed_hour(polling: Polling | None = None) -> Units:
    """Return the units that one person adds by following a waiting job for an hour, beside running jobs.

    :param polling: the schedule of requests; None: the client's own.
    """
    used: list[Units] = []
    for followed in (False, True):
        cloud = SimulatedCloud(slots=SLOTS, idle_minutes=0, create_rate=10, create_burst=20)
        with cloud.running():
            for number in range(2 * SLOTS):
                cloud.timeline.sleep(1)
                add(cloud, f"job{number:05}", number)
            minutes(cloud, 1)
            meter, over = Meter(cloud), cloud.timeline.now + WATCHED_SECONDS
            if followed:
                cloud.timeline.spawn(partial(follow, cloud, over, polling or Polling()))
            minutes(cloud, WATCHED_SECONDS / 60)
            used.append(meter.used())
    without, with_one = used
    return {unit: (with_one[unit] - without[unit]) * 3600 / WATCHED_SECONDS for unit in DOLLARS}


def follow(cloud: SimulatedCloud, until: float, polling: Polling) -> None:
    """Request the last waiting job repeatedly, by a schedule.

    :param until: seconds of simulated time.
    """
    pace = polling.follower()
    while cloud.timeline.now < until:
        name = f"job{2 * SLOTS - 1:05}"
        status, described = cloud.ask("GET", f"/jobs/{name}", caller="arn:aws:iam::123456789012:user/user1")
        cloud.timeline.sleep(pace.after(status, described))


def counted(polling: Polling | None = None) -> Counted:
    """Return the units of all situations."""
    minute = idle_minute()
    return Counted(minute, job(minute), followed_hour(polling))


def reference() -> Counted:
    """Return the stored units."""
    return Counted(**json.loads(REFERENCE.read_text()))


def dearer(now: Counted, before: Counted, tolerance: float = 0.1) -> list[str]:
    """Return a message for each situation that became more expensive, with the units that increased.

    :param tolerance: the allowed increase, as a fraction of the price.
    """
    found = []
    for what in ("minute", "job", "hour"):
        units, known = getattr(now, what), getattr(before, what)
        if dollars(units) > (1 + tolerance) * dollars(known):
            more = ", ".join(
                f"{unit} {known[unit]:g} -> {units[unit]:g}" for unit in units if units[unit] > known[unit]
            )
            found.append(f"{what}: {100 * dollars(known):.4f} -> {100 * dollars(units):.4f} cents ({more})")
    return found


def fixed() -> list[tuple[str, str, float]]:
    """Return the fixed costs: name, formula, dollars a month."""
    resources = yaml_parse((ROOT / "template.yaml").read_text())["Resources"].values()
    alarms = sum(one["Type"] == "AWS::CloudWatch::Alarm" and "Condition" not in one for one in resources)
    of_queue, of_project = METRICS
    return [
        (
            "VPC endpoint, each subnet",
            f"{prices.HOURS} h × {prices.ENDPOINT_HOUR}",
            prices.HOURS * prices.ENDPOINT_HOUR,
        ),
        (
            f"metrics: {of_queue} of the queue, {of_project} of a project",
            f"{sum(METRICS)} × {prices.METRIC:.2f}",
            sum(METRICS) * prices.METRIC,
        ),
        ("dashboard", f"1 × {prices.DASHBOARD:.2f}", prices.DASHBOARD),
        ("alarms", f"{alarms} × {prices.ALARM:.2f}", alarms * prices.ALARM),
    ]


def table(units: Counted) -> str:
    """Return the tables of docs/reference/stack.md."""
    rows = ["| what costs the same each month | formula | dollars |", "|---|---|---|"]
    rows += [f"| {what} | {formula} | {amount:.2f} |" for what, formula, amount in fixed()]
    in_all = sum(amount for _, _, amount in fixed())
    rows += [f"| **in all** | | **{in_all:.2f}** |", ""]
    situations = {"an idle minute": units.minute, "a job": units.job, "a followed hour": units.hour}
    rows += [f"| counted units | {' | '.join(DOLLARS)} | cents |", f"|---|{'---|' * len(DOLLARS)}---|"]
    for what, one in situations.items():
        rows.append(f"| {what} | {' | '.join(f'{one[unit]:,.4g}' for unit in DOLLARS)} | {100 * dollars(one):.4f} |")
    idle = in_all + TICKS * dollars(units.minute)
    jobs = idle + JOBS_A_MONTH * dollars(units.job)
    rows += ["", "| a month | dollars |", "|---|---|"]
    rows += [
        f"| idle: {TICKS:,} minutes | {idle:.2f} |",
        f"| with 1,000 jobs a day | {jobs:.2f} |",
        f"| and 50 people, each of whom follows a waiting job for 8 hours on 22 days | "
        f"{jobs + WATCHED_HOURS * dollars(units.hour):.2f} |",
    ]
    return "\n".join(rows)


def written(page: str, content: str) -> str:
    """Return a page with new content between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def main() -> int:
    """Print the tables. With `--keep`, store the units and the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="make the units the test's reference, and write the page")
    parser.add_argument("--pause", type=float, help="seconds between two requests (default: the client's schedule)")
    options = parser.parse_args()
    units = counted(Polling(options.pause))
    print(table(units))
    if options.keep:
        REFERENCE.write_text(json.dumps(units.as_json(), indent=2) + "\n")
        PAGE.write_text(written(PAGE.read_text(), table(reference())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
