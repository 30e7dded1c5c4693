"""``python -m tools.limits_reference docs/reference/limits.md``: update the limits from the constants of the code.

Text above the page's marker comment is written by hand; text below the marker is generated.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from api_contract import models, preview
from job_queue.adapters import metadata
from job_queue.adapters.records import heavy_requests, policy_history
from job_queue.api import routes, sizes
from job_queue.carrier_agent import files, processes
from job_queue.domain import names, policy_validation
from job_queue.domain.access import places
from job_queue.domain.carriers import carrier_launch, members
from job_queue.domain.expectations import hangs
from job_queue.domain.failures import rules
from job_queue.domain.requests import scheduling_tags
from job_queue.scheduler.documents import policy_schema
from job_queue.services import drains, policy_service, submission
from job_queue.validation.issue import MOST_ISSUES
from job_queue.validation.rules import MOST_REQUEST_TAGS
from sagemaker_queue.jobs.packaging import archive_reader, packing
from sagemaker_queue.jobs.packaging.command import LONGEST_NAME
from sagemaker_queue.queue.config.shared_settings import LARGEST_TEXT
from sagemaker_queue.tuning import plan as tuning_plan
from sagemaker_queue.workflows import grid
from tools.generated_text import update_page, with_sections
from tools.markdown import table

TEMPLATE = Path(__file__).parents[1] / "template.yaml"
DAY = 24 * 3600

Row = tuple[str, str, str]


def with_limits(page: str) -> str:
    """Return the page with the present limits."""
    return with_sections(page, limit_sections(yaml_parse(TEMPLATE.read_text())), "the code")


def limit_sections(template: dict[str, Any]) -> Iterator[str]:
    """Return the generated sections of the page in their order."""
    yield _section("Jobs", _jobs())
    yield _section("Policy", _policy(template))
    yield _section("API", _api(template))
    yield _section("Shared instances", _shared_instances())
    yield _section("Client", _client())
    yield _section("How long data is kept", _retention(template))


def _section(heading: str, rows: Iterable[Row]) -> str:
    return f"## {heading}\n\n{table(['limit', 'value', 'note'], rows)}"


def _jobs() -> Iterator[Row]:
    default = policy_schema.Settings()
    yield "name of a job", f"{names.MAX_NAME} characters", "letters, digits and hyphens; not `-qstamp-N` at the end"
    yield "request as JSON", f"{submission.MAX_REQUEST_BYTES // 1024} KB", "put large values into S3"
    yield "tags of a request", f"{MOST_REQUEST_TAGS}", "SageMaker allows 50, and the queue adds its own"
    yield (
        "waiting jobs of a person",
        f"{default.max_waiting:,}",
        f"the policy's setting `max_waiting`, at most {policy_schema.MOST_WAITING:,}",
    )
    yield "priority", f"-{policy_schema.MAX_PRIORITY:,} to {policy_schema.MAX_PRIORITY:,}", "higher goes first"
    yield "retries of a job", f"{scheduling_tags.MAX_RETRIES}", "tag `retries`"
    yield "free retries in a row", f"{rules.MOST_FREE_RETRIES}", "later ones count as retries"
    yield "failure rules of a job", f"{rules.MOST_JOB_RULES}", "tag `retry_on`"
    yield "jobs that a job waits for", f"{scheduling_tags.MOST_DEPENDENCIES}", "tag `after`"
    yield "sizes of a job", f"{scheduling_tags.MOST_SIZES}", "such as `-n 8,4,2`"
    yield "jobs of a group at a time", f"{scheduling_tags.MOST_PARALLEL:,}", "tag `max_parallel`"
    yield "S3 addresses to which a job writes", f"{places.MOST_PLACES}", "checkpoints, TensorBoard and others"
    yield "attempts stopped because a job hangs", f"{hangs.MOST_HANGS}", "later hangs only lead to notices"
    yield "faults in an answer", f"{MOST_ISSUES}", "correct them, and send the request again"


def _policy(template: dict[str, Any]) -> Iterator[Row]:
    ceiling = template["Parameters"]["MaxCapacity"]["ConstraintDescription"].rpartition(" ")[2]
    yield "instances of the queue", f"{int(ceiling):,}", "parameter `MaxCapacity`, 2 by default"
    yield "policy as JSON", f"{policy_service.MAX_POLICY_BYTES // 1024} KB", ""
    yield "pools", f"{policy_schema.MOST_POOLS}", ""
    yield "drained pools", f"{drains.MOST_DRAINS}", "also pools that the policy no longer has"
    yield "projects and departments together", f"{policy_schema.MOST_QUOTA_HOLDERS}", ""
    yield "name of a pool, project or department", "63 characters", "letters, digits and `_ . : / = @ -`"
    yield "patterns of a project", f"{policy_validation.MOST_PATTERNS}", "members, admins, roles and buckets"
    yield "failure rules", f"{policy_schema.MOST_FAILURE_RULES}", "of the policy, and of each project"
    yield "prices", f"{policy_schema.MOST_PRICES}", "instance types"
    yield "window", f"{policy_schema.WIDEST_WINDOW:,}", "waiting jobs that a cycle reads of each waiting queue"
    yield (
        "waiting queues of a project",
        f"{metadata.WAITING_QUEUES_OF_PROJECT}",
        "combinations of instance types and pools",
    )
    yield "waiting queues of all projects", f"{metadata.WAITING_QUEUES_IN_ALL:,}", ""
    yield "time until a drain", f"{drains.LONGEST_AHEAD // DAY} days", "`smq drain --at`"


def _api(template: dict[str, Any]) -> Iterator[Row]:
    parameters = template["Parameters"]
    yield "body of a request", f"{routes.MAX_BODY_BYTES // 1024} KB", ""
    yield "lists in an answer", f"{sizes.MOST_BYTES / 1e6:g} MB", "ask for the next page"
    yield "entries of a page", f"{models.MAX_PAGE}", "the client reads all pages"
    yield "period of a preview", f"{preview.LONGEST_HOURS} hours", ""
    yield (
        "dry runs and previews at once",
        f"{len(heavy_requests.DRY_RUN_PERMITS)}",
        f"previews {len(heavy_requests.PREVIEW_PERMITS)}, and one of each caller",
    )
    for name, what in (
        ("ReadRate", "requests a second for each route that shows something"),
        ("DryRunRate", "dry runs a second"),
        ("PreviewRate", "previews a second"),
        ("CreateRate", "launches a second"),
    ):
        yield what, parameters[name]["Default"], f"parameter `{name}`"


def _shared_instances() -> Iterator[Row]:
    yield "GPUs of an instance", f"{members.MOST_GPUS}", "pool's field `gpus`"
    yield "life of a carrier", f"{carrier_launch.LONGEST_SECONDS // DAY} days", "members then move to a new one"
    yield "files of a folder that is saved", f"{files.MOST_FILES:,}", "checkpoints, model and output"
    yield "levels of folders that are saved", f"{files.DEEPEST}", ""
    yield "files and folders of a member", f"{files.MOST_ENTRIES:,}", "the member is ended beyond this"
    yield "line of the log", f"{processes.LONGEST_LINE // 1024} KB", "longer lines are split"


def _client() -> Iterator[Row]:
    yield "code of a job", f"{packing.DEFAULT_LIMIT // 10**6} MB", "`--max-code MB`"
    yield "name of a job by `smq submit`", f"{LONGEST_NAME} characters", ""
    yield "name of a study", f"{tuning_plan.LONGEST_NAME} characters", "`smq sweep --study`"
    yield "jobs of `smq sweep --grid`", f"{grid.MOST}", "`--yes` for more"
    yield (
        "results that `smq get` unpacks",
        f"{archive_reader.ALWAYS_ALLOWED // 10**9} GB",
        f"or {archive_reader.GROWTH} times the archive; `--max-size GB`",
    )
    yield "files that `smq get` unpacks", f"{archive_reader.MOST_FILES:,}", "`--max-files N`"
    yield "disk that `smq get` leaves free", f"{archive_reader.KEPT_FREE >> 20} MB", ""
    yield "text that `smq config import` reads", f"{LARGEST_TEXT >> 10} KB", ""


def _retention(template: dict[str, Any]) -> Iterator[Row]:
    parameters, resources = template["Parameters"], template["Resources"]
    yield "finished jobs", f"{parameters['FinishedJobDays']['Default']} days", "parameter `FinishedJobDays`"
    yield "history of attempts", f"{parameters['AttemptHistoryDays']['Default']} days", "parameter `AttemptHistoryDays`"
    yield "earlier policies", f"the last {policy_history.VERSIONS_KEPT}", "`smq policy history`"
    yield "logs of the functions", f"{resources['QueueLogGroup']['Properties']['RetentionInDays']} days", ""
    yield (
        "messages in the dead-letter queue",
        f"{resources['DeadLetterQueue']['Properties']['MessageRetentionPeriod'] // DAY} days",
        "",
    )


if __name__ == "__main__":
    sys.exit(update_page(with_limits))
