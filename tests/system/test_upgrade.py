"""An upgrade that needs another index, rehearsed: the old template, rows, then the new templates one after the other.

docs/developers/adr/0094-an-index-is-replaced-in-three-versions.md has the steps.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws import deployment
from local_cloud.aws.stack import PROJECT, LocalCloud
from tests.system.conftest import System
from tests.waiting import until

pytestmark = pytest.mark.thorough

OLD, NEW = "finished", "finished-2"
BEGIN, END = "        - IndexName: finished ", "      TimeToLiveSpecification"
RIGHT = "table/sagemaker-queue/index/finished"
MADE = {"UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"}


class Versions:
    """Templates of further versions, deployed to a running cloud as updates of its stack."""

    def __init__(self, cloud: LocalCloud, folder: Path) -> None:
        self._cloud = cloud
        self._folder = folder
        self._template = (PROJECT / "template.yaml").read_text()
        begin = self._template.index(BEGIN)
        self._index = self._template[begin : self._template.index(END, begin)]

    def with_both(self) -> str:
        """Return the template with the new index beside the old one, and the right to read both."""
        made = self._template.replace(self._index, self._index + self.another(NEW), 1)
        return made.replace(RIGHT, f"{RIGHT}*", 1)

    def with_new(self) -> str:
        """Return the template with the new index alone."""
        return self.with_both().replace(self._index, "", 1)

    def changed_in_place(self) -> str:
        """Return the template with the new index's attributes under the old name."""
        return self._template.replace(self._index, self.another(OLD), 1)

    def another(self, name: str) -> str:
        """Return an index with one attribute more: when a row expires."""
        return self._index.replace(BEGIN, f"        - IndexName: {name} ", 1).replace(
            "              - reason\n", "              - reason\n              - expires\n", 1
        )

    def deploy(self, template: str, index: str = OLD) -> tuple[str, str]:
        """Update the stack; return its status and the reasons of failed resources.

        :param index: the one that the function of this version reads.
        """
        project = self._folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        for name in deployment.CODE:
            shutil.copytree(PROJECT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
        code = project / "job_queue/adapters/job_repository.py"
        source = code.read_text()
        assert f'FINISHED_INDEX = "{OLD}"' in source
        code.write_text(source.replace(f'FINISHED_INDEX = "{OLD}"', f'FINISHED_INDEX = "{index}"'))
        (project / "template.yaml").write_text(template)
        return self._update(project)

    def _update(self, project: Path) -> tuple[str, str]:
        cloudformation: Any = self._cloud.client("cloudformation")
        packaged = deployment.packaged_template(project)
        key = f"{len(self.objects())}.zip"
        self._cloud.client("s3").put_object(Bucket=deployment.BUCKET, Key=key, Body=deployment.function_code(project))
        for name in deployment.FUNCTIONS:
            packaged["Resources"][name]["Properties"]["CodeUri"] = f"s3://{deployment.BUCKET}/{key}"
        body = deployment.expanded(json.dumps(packaged), cloudformation.meta.region_name)
        url = f"https://s3.amazonaws.com/{deployment.BUCKET}/template.json"
        self._cloud.client("s3").put_object(Bucket=deployment.BUCKET, Key="template.json", Body=body.encode())
        (stack,) = cloudformation.describe_stacks(StackName=deployment.STACK)["Stacks"]
        cloudformation.update_stack(
            StackName=deployment.STACK,
            TemplateURL=url,
            Parameters=[{"ParameterKey": it["ParameterKey"], "UsePreviousValue": True} for it in stack["Parameters"]],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )

        def status() -> str:
            (stack,) = cloudformation.describe_stacks(StackName=deployment.STACK)["Stacks"]
            return str(stack["StackStatus"])

        until(lambda: status() in MADE)
        pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=deployment.STACK)
        return status(), " ".join(it.get("ResourceStatusReason", "") for page in pages for it in page["StackEvents"])

    def objects(self) -> list[Any]:
        listed: list[Any] = self._cloud.client("s3").list_objects_v2(Bucket=deployment.BUCKET)["Contents"]
        return listed


def indexes(system: System) -> set[str]:
    table = system.cloud.client("dynamodb").describe_table(TableName="sagemaker-queue")["Table"]
    return {index["IndexName"] for index in table["GlobalSecondaryIndexes"]}


def finished(system: System) -> set[str]:
    return {job.job for job in system.queue.jobs("completed")}


@pytest.fixture
def system(tmp_path: Path) -> Any:
    with LocalCloud(slots=2) as cloud:
        yield System(cloud)


def test_an_index_is_replaced_in_three_versions_and_every_row_is_found_in_each(system: System, tmp_path: Path) -> None:
    versions = Versions(system.cloud, tmp_path)
    for number in range(3):
        system.submit(f"before{number}")
    until(lambda: len(finished(system)) == 3)

    assert versions.deploy(versions.with_both())[0] == "UPDATE_COMPLETE"
    assert indexes(system) == {OLD, NEW}
    system.submit("between")
    until(lambda: len(finished(system)) == 4)

    assert versions.deploy(versions.with_both(), index=NEW)[0] == "UPDATE_COMPLETE"
    rows = system.cloud.client("dynamodb").query(
        TableName="sagemaker-queue",
        IndexName=NEW,
        KeyConditionExpression="finished = :yes",
        ExpressionAttributeValues={":yes": {"S": "yes"}},
    )["Items"]
    assert len(rows) == 4
    assert all("expires" in row for row in rows), "the new attribute, of rows that were written before the index, too"
    assert finished(system) == {"before0", "before1", "before2", "between"}

    assert versions.deploy(versions.with_new(), index=NEW)[0] == "UPDATE_COMPLETE"
    assert indexes(system) == {NEW}
    system.submit("after")
    until(lambda: len(finished(system)) == 5)


def test_what_cloudformation_refuses_leaves_the_version_before_in_force(system: System, tmp_path: Path) -> None:
    versions = Versions(system.cloud, tmp_path)
    system.submit("before")
    until(lambda: finished(system) == {"before"})
    for template, complaint in (
        (versions.changed_in_place(), "You can create a new GSI with a different name"),
        (versions.with_new(), "more than one GSI creation or deletion in a single update"),
    ):
        status, reasons = versions.deploy(template)
        assert status == "UPDATE_ROLLBACK_COMPLETE"
        assert complaint in reasons
        assert indexes(system) == {OLD}
        assert finished(system) == {"before"}
