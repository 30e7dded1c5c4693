"""A queue that is full of jobs, for the page to show: its answers are made up, its times are relative to now."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Json = dict[str, Any]
_ME = "arn:aws:iam::123456789012:user/ada"
_PEOPLE = {"vision": ("ada", "bob"), "nlp": ("eve", "kim"), "speech": ("lin",)}
_POLICY = {
    "pools": [
        {"name": "p5", "capacity": 8, "instance_type": "ml.p5.48xlarge"},
        {"name": "g5", "capacity": 4, "instance_type": "ml.g5.12xlarge"},
    ],
    "projects": [
        {"name": "vision", "quota": {"p5": 4, "g5": 2}},
        {"name": "nlp", "quota": {"p5": 3, "g5": 1}},
        {"name": "speech", "quota": {"p5": 1, "g5": 1}},
    ],
    "prices": {"ml.p5.48xlarge": 98.32, "ml.g5.12xlarge": 7.09},
}
_WORDS = ("resnet", "vit", "bert", "llama", "whisper", "lora", "clip", "gpt", "unet", "moe")


class SampleQueue(ThreadingHTTPServer):
    """Answers as a queue does, with so many jobs that wait."""

    daemon_threads = True

    def __init__(self, waiting: int, seed: int = 7) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._random = random.Random(seed)
        self._now = datetime.now(timezone.utc)
        self._count = 0
        self.refuses = False  # all requests
        self.admin = False  # whether the caller is an admin of the queue
        self.drains: dict[str, Json] = {}  # by pool
        self.past: list[Json] = []
        self.finished: list[Json] = []  # the latest first
        self.asked: list[str] = []  # the paths of all requests, with their queries
        self.active: list[Json] = []
        self._fill()
        self.waiting = [self._waiting(place) for place in range(1, waiting + 1)]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/prod"

    def answer(self, method: str, path: str) -> tuple[int, Json]:
        """What is answered."""
        self.asked.append(path)
        if self.refuses:
            return 403, {"message": "The queue is being repaired."}
        place = path.partition("?")[0].removeprefix("/prod")
        jobs = {job["job"]: job for job in (*self.active, *self.waiting)}
        if method in {"PATCH", "DELETE"}:
            return 200, jobs[place.rpartition("/")[2]]
        fixed: dict[str, Json] = {
            "/whoami": {"owner": _ME, "admin": self.admin},
            "/queue": self._status(),
            "/jobs": {"jobs": list(jobs.values())},
            "/history": {"attempts": self.past},
            "/policy": {"version": 3, "policy": _POLICY},
            "/policy/preview": self._preview(),
        }
        if place == "/jobs" and "state=finished" in path:
            return 200, {"jobs": self.finished}
        if place in fixed:
            return 200, fixed[place]
        job = jobs.get(place.rpartition("/")[2])
        return (200, self._detail(job)) if job else (404, {"message": "there is no such job"})

    def _fill(self) -> None:
        """Give each lane one job after the other, up to now and beyond."""
        for pool, lanes in (("p5", 8), ("g5", 4)):
            lane = 0
            while lane < lanes:
                size = min(self._random.choice((1, 1, 2, 4)) if pool == "p5" else 1, lanes - lane)
                time = self._now - timedelta(hours=24)
                while time < self._now:
                    end = time + timedelta(minutes=self._random.randint(40, 420))
                    self._add(pool, size, time, end)
                    time = end + timedelta(minutes=self._random.randint(1, 12))
                lane += size

    def _add(self, pool: str, size: int, start: datetime, end: datetime) -> None:
        job = self._job()
        slots, kind = {pool: size}, {"p5": "ml.p5.48xlarge", "g5": "ml.g5.12xlarge"}[pool]
        if end > self._now:
            more = {
                "state": "running",
                "slots": slots,
                "instances": size,
                "started": _at(start),
                "expectedEnd": _at(end),
            }
            self.active.append({**job, **more, "entryTime": _at(start - timedelta(hours=1)), "attempt": 1})
            return
        ran = (end - start).total_seconds()
        outcome = self._random.choices(("completed", "preempted", "failed"), (6, 2, 1))[0]
        self.past.append(
            {
                **{name: job[name] for name in ("job", "project", "owner")},
                "attempt": 1,
                "outcome": outcome,
                "slots": slots,
                "instances": {kind: size},
                "instanceCount": size,
                "gpus": size * (8 if pool == "p5" else 4),
                "market": "on_demand",
                "submitted": _at(start - timedelta(hours=2)),
                "launched": _at(start),
                "began": _at(start),
                "ended": _at(end),
                "waitedSeconds": 7200.0,
                "ranSeconds": ran,
                "borrowed": self._random.choice((0, 0, size)),
                "lostSeconds": int(ran / 9) if outcome == "preempted" else None,
                "madeRoomFor": "bert-large" if outcome == "preempted" else None,
            }
        )

    def _job(self) -> Json:
        self._count += 1
        project = self._random.choice(list(_PEOPLE))
        owner = f"arn:aws:iam::123456789012:user/{self._random.choice(_PEOPLE[project])}"
        name = f"{self._random.choice(_WORDS)}-{self._count}"
        return {"job": name, "project": project, "owner": owner, "priority": self._random.choice((0, 0, 1, 5))}

    def _waiting(self, place: int) -> Json:
        preempted = place % 7 == 0
        entered = self._now - (timedelta(hours=3, minutes=place) if preempted else timedelta(minutes=7 * place))
        start = self._now + timedelta(minutes=25 * place)
        size = self._random.choice((1, 1, 2))
        job, held = self._job(), place % 11 == 0
        return {
            **job,
            "state": "preempted" if preempted else "pending",
            "attempt": 2 if preempted else 1,
            "position": place,
            "instances": size,
            "entryTime": _at(entered),
            "stateSince": _at(self._now - timedelta(minutes=25) if preempted else entered),
            "instanceTypes": ["ml.p5.48xlarge"],
            "held": held,
            "expectedStart": None
            if held
            else {
                "message": f"Half of such jobs start by {start:%Y-%m-%d %H:%M} UTC.",
                "start": _at(start),
                "earliest": _at(self._now + timedelta(minutes=10 * place)),
                "likely": _at(start),
                "latest": _at(self._now + timedelta(minutes=60 * place)),
                "level": 0.8 if place % 3 else None,
                "looks": 40,
                "doubt": "SPREAD" if place % 3 else None,
            },
            "expectedEnd": None if held else _at(start + timedelta(hours=2)),
            "reason": {"code": "HELD_BY_USER", "message": "It is on hold: it starts only after it is released."}
            if held
            else {
                "code": "WAITING_FOR_CAPACITY",
                "message": f"It needs {size} instance{'s' if size > 1 else ''} of p5; 0 of 8 are free, 8 are used by "
                f"{len(self._blockers())} jobs. No job of its project runs there with a lower priority than "
                f"{job['priority']}.",
            },
        }

    def _blockers(self) -> list[str]:
        """Return the jobs that hold instances of p5."""
        return [str(job["job"]) for job in self.active if "p5" in job["slots"]]

    def _status(self) -> Json:
        used = {
            name: {
                pool: sum(job["slots"].get(pool, 0) for job in self.active if job["project"] == name)
                for pool in ("p5", "g5")
            }
            for name in _PEOPLE
        }
        pools = [
            {
                "name": pool["name"],
                "instanceType": pool["instance_type"],
                "capacity": pool["capacity"],
                "drain": self.drains.get(str(pool["name"])),
                "used": sum(each[str(pool["name"])] for each in used.values()),
            }
            for pool in _POLICY["pools"]  # type: ignore[attr-defined]
        ]
        for pool in pools:
            pool["free"] = pool["capacity"] - pool["used"]
        projects = [
            {**project, "used": used[project["name"]], "share": project["quota"], "waiting": len(self.waiting) // 3}
            for project in _POLICY["projects"]  # type: ignore[attr-defined]
        ]
        return {
            "pools": pools,
            "active": self.active,
            "waiting": self.waiting[:100],
            "moreWaiting": len(self.waiting) > 100,
            "projects": projects,
            "policyVersion": 3,
        }

    def _detail(self, job: Json) -> Json:
        submitted = _change(job["entryTime"], "pending", 1, "submitted")
        details = {"request": {"TrainingJobName": job["job"], "ResourceConfig": {"InstanceCount": job["instances"]}}}
        if job["state"] == "running":
            return {**job, **details, "history": [submitted, _change(job["started"], "running", 1, "")], "why": None}
        why = {
            "blockers": self._blockers(),
            "advice": ["Wait: it starts when enough of the jobs that block it have ended."],
        }
        if job["state"] == "pending":
            return {**job, **details, "history": [submitted], "why": why}
        name, claimant = f"{job['job']}-qstamp-1", self.active[0]["job"]
        began, told, ended = (_at(self._now - timedelta(minutes=minutes)) for minutes in (150, 27, 25))
        attempt = {"attempt": 1, "trainingJobName": name, "started": began, "ended": ended, "outcome": "preempted"}
        history = [
            submitted,
            _change(began, "starting", 1, f"launching {name}"),
            _change(began, "running", 1, f"SageMaker accepted {name}"),
            _change(told, "stopping", 1, f"making room for {claimant} (reclaim)"),
            _change(ended, "preempted", 1, f"made room for {claimant}"),
        ]
        attempts = [{**attempt, "instances": job["instances"]}]
        return {**job, **details, "attempts": attempts, "history": history, "why": why}

    def _preview(self) -> Json:
        at, until = self._now, self._now + timedelta(hours=8)
        waits = {"vision": (5400, 1800), "nlp": (9000, 4200), "speech": (2400, 2400)}
        return {
            "policyVersion": 3,
            "at": _at(at),
            "until": _at(until),
            "starts": [{"job": self.waiting[0]["job"], "slots": {"p5": 1}}] if self.waiting else [],
            "projects": [
                {"project": name, "waiting": 4, "known": 4, "waitNow": now, "waitThen": then}
                for name, (now, then) in waits.items()
            ],
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: SampleQueue

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = self.server.answer(self.command, self.path)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Keep output clean."""


def _change(at: str, state: str, attempt: int, cause: str) -> Json:
    return {"at": at, "state": state, "attempt": attempt, "cause": cause}


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


@contextmanager
def sample_queue(waiting: int) -> Iterator[SampleQueue]:
    """A queue on this machine, for a time."""
    with SampleQueue(waiting) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
