"""Generated requests by three people, against a local cloud: nothing fails, and nobody does what they may not.

`python -m tests.system.generated_requests --requests 10000` sends that many. Schemathesis makes them from
docs/openapi.yaml, well formed and not; some are about jobs and versions that there are.

The other may change nothing, so both tables are read after each of their requests, and are as before. The owner may
change what is theirs: the jobs of others and the policy stay as they are. The admin may do everything, and comes last.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import boto3
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from local_cloud.aws.stack import ACCOUNT, LocalCloud
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue.queue.transport import Signature
from tests.documents import read_openapi
from tests.system.conftest import System, line_of, stored_rows
from tests.system.people import arn, queue_of, session_of
from tests.waiting import PATIENCE

OPENAPI = read_openapi()
PEOPLE = ("other", "owner", "admin")
LONG = "import time; time.sleep(86400)"
P5 = "ml.p5.48xlarge"
POLICY: dict[str, Any] = {
    "pools": [{"name": "p5", "instance_type": P5, "capacity": 2}],
    "projects": [
        {"name": "vision", "members": [arn("owner")], "quota": {"p5": 1}},
        {"name": "ops", "members": [arn("admin")], "quota": {"p5": 1}},
    ],
}
OWN_JOBS, ADMINS_JOBS = ("runs", "waits", "held"), ("theirs", "theirs-waits")


class Watched(System):
    """A full queue, in which nothing happens by itself, with jobs of the owner's and the admin's."""

    def __init__(self, cloud: LocalCloud) -> None:
        super().__init__(cloud)
        self.sessions = {name: session_of(cloud, name) for name in PEOPLE}
        self.queue.apply_policy(POLICY, 0)
        owner, admin = (queue_of(cloud, self.sessions[name]) for name in ("owner", "admin"))
        owner.submit(self.tagged("runs", "vision"))
        admin.submit(self.tagged("theirs", "ops"))
        self.wait_training("runs")
        self.wait_training("theirs")
        for name in OWN_JOBS[1:]:
            owner.submit(self.tagged(name, "vision", instances=2), preflight=False)
        owner.change("held", held=True)
        admin.submit(self.tagged("theirs-waits", "ops", instances=2), preflight=False)

    def tagged(self, name: str, project: str, instances: int = 1) -> dict[str, Any]:
        tags = [{"Key": "project", "Value": project}, {"Key": "preemptible", "Value": "false"}]
        return self.request(name, LONG, instances=instances, Tags=tags)

    def signature(self, who: str) -> Signature:
        session: boto3.Session = self.sessions[who]
        return Signature(QueueConfig(url=self.cloud.queue_url, region="us-east-1"), session)

    def rows(self, jobs: tuple[str, ...] | None = None) -> list[str]:
        """What the tables hold, but for what every cycle moves: of all, or of these jobs and of policies."""
        return sorted(json.dumps(row, sort_keys=True) for row in stored_rows(self.cloud) if _counts(row, jobs))


def _counts(item: dict[str, Any], jobs: tuple[str, ...] | None) -> bool:
    line = line_of(item)
    if line == "control":
        return bool(item["position"]["S"] == "policy")
    if line == "outlook":  # the tick's
        return False
    return jobs is None or line.startswith("policy-") or item.get("jobName", {}).get("S") in jobs


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in OPENAPI["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield (
                    path,
                    method,
                    {**operation, "parameters": [*operation.get("parameters", []), *methods.get("parameters", [])]},
                )


def attack(system: Watched, requests: int, number: int = 0) -> "Counter[tuple[str, int]]":
    """Send so many requests; gives how often who got which status.

    :raises AssertionError: one failed, answered what the definition does not promise, or changed what it may not.
    """
    import schemathesis
    from schemathesis import Case, GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    schema = schemathesis.openapi.from_dict(OPENAPI, config=config)
    promised = [not_a_server_error, checks.status_code_conformance, checks.response_schema_conformance]
    kinds = [
        (path, method, mode)
        for path, method, operation in operations()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if mode is GenerationMode.POSITIVE or operation["parameters"] or "requestBody" in operation
    ]
    statuses: Counter[tuple[str, int]] = Counter()

    def send(who: str, of_others: tuple[str, ...] | None, before: list[str], case: Case[Any]) -> None:
        response = case.call(base_url=system.cloud.queue_url, auth=system.signature(who), timeout=PATIENCE)
        case.validate_response(response, checks=promised)
        statuses[who, response.status_code] += 1
        if who != "admin":
            assert system.rows(of_others) == before, f"{who}: {case.as_curl_command()}"

    each = -(-requests // (len(PEOPLE) * len(kinds)))
    for who in PEOPLE:
        of_others = {"other": None, "owner": ADMINS_JOBS}.get(who, ())
        before = system.rows(of_others)
        for path, method, mode in kinds:
            operation = schema[path][method]
            cases = operation.as_strategy(generation_mode=mode)
            if known := list(_known(system, path, method, mode is GenerationMode.POSITIVE)):
                # Half of them: a name that is drawn is nobody's, and the definition knows little of what is accepted.
                cases = st.one_of(cases, st.one_of([operation.as_strategy(generation_mode=mode, **it) for it in known]))
            _each(cases, each, number, partial(send, who, of_others, before))
    return statuses


def _each(cases: Any, count: int, number: int, send: Callable[[Any], None]) -> None:
    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases)
    def sent(case: Any) -> None:
        send(case)

    sent()


def _known(system: Watched, path: str, method: str, well_formed: bool) -> Iterator[dict[str, Any]]:
    """Parts of requests that are about jobs and versions that there are."""
    names = [{"path_parameters": {"name": name}} for name in (*OWN_JOBS, *ADMINS_JOBS)] if "{name}" in path else [{}]
    contents = [{"body": body} for body in bodies(system, path, method)] if well_formed else []
    for name in names:
        for content in contents or [{}]:
            if name or content:
                yield {**name, **content}


def bodies(system: Watched, path: str, method: str) -> list[Any]:
    """Bodies that the route accepts from somebody."""
    version = system.queue.policy().version
    known: dict[tuple[str, str], list[Any]] = {
        ("post", "/add-job"): [system.tagged("more", "vision", 2), system.tagged("more-of-ops", "ops", 2)],
        ("post", "/plan"): [system.tagged("more", "vision")],
        ("patch", "/jobs/{name}"): [
            *({"priority": 7}, {"held": True}, {"held": False, "priority": -1}),
            *({"requeue": True}, {"held": True, "now": True}, {"remoteDebug": True}),
        ],
        ("post", "/drain"): [{"pool": "p5"}, {"pool": "p5", "stops": "all", "reason": "<b>"}],
        ("post", "/undrain"): [{"pool": "p5"}],
        ("put", "/policy"): [{"policy": POLICY, "version": version}],
        ("post", "/policy/rollback"): [{"to": 1, "version": version}],
        ("post", "/policy/preview"): [{"policy": POLICY}, {"capacity": {"p5": 4}, "hours": 1}],
    }
    return known.get((method, path), [])


def a_cloud() -> LocalCloud:
    """A local cloud whose admins are the user `admin` and whoever runs it."""
    admins = f"arn:aws:iam::{ACCOUNT}:root,{arn('admin')}"
    return LocalCloud(slots=2, parameters={"AdminArns": admins})


def main(arguments: list[str]) -> int:
    """Run it by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, metavar="N", help="how many to send (default 10000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="makes the requests others")
    options = parser.parse_args(arguments)
    statuses: Counter[tuple[str, int]] = Counter()
    for number in count(options.seed):  # of some requests there are fewer than asked for; the next round has others
        with a_cloud() as cloud:
            statuses += attack(Watched(cloud), options.requests - statuses.total(), number)
            assert "Traceback" not in cloud.function_logs()
        if statuses.total() >= options.requests:
            break
    for (who, status), times in sorted(statuses.items()):
        print(f"{who:6} {status} {times:6}")
    print(f"{statuses.total()} requests: none failed, and nothing was changed that may not be.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
