"""docs/operate/share-instances.md, taken literally: the commands of its steps, typed one after the other."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import System
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.thorough  # test_sharing.py has jobs that share an instance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operate/share-instances.md").read_text()
DEPLOY = "sam deploy --parameter-overrides WorkBucket=$WORK_BUCKET"  # the local cloud has deployed with a work bucket
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def test_the_steps_lead_to_two_jobs_on_one_instance(tmp_path: Path) -> None:
    commands = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(commands) == 4 and DEPLOY in commands[1]  # noqa: PT018
    (policy,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "policy.yaml").write_text(policy)
    shutil.copytree(ROOT / "examples/iam", tmp_path / "examples/iam")
    (tmp_path / "train.py").write_text(
        f"import time, pathlib\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n    time.sleep(0.05)\n"
    )
    script = "\n".join(
        ["set -euo pipefail", *commands[:1], *commands[2:3], "smq policy apply --yes policy.yaml", commands[3]]
    )
    with LocalCloud(slots=2) as cloud:
        iam, s3 = cloud.client("iam"), cloud.client("s3")
        iam.create_role(RoleName="training-nlp", AssumeRolePolicyDocument=json.dumps(TRUST))
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        typed = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={
                **os.environ,
                **cloud.environment(),
                "PATH": programs,
                "SAGEMAKER_QUEUE_CONFIG": str(tmp_path / "profiles.toml"),
                "SAGEMAKER_QUEUE_INSTANCE_TYPE": "ml.p5.48xlarge",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert typed.returncode == 0, typed.stderr
        (bucket,) = [one["Name"] for one in s3.list_buckets()["Buckets"] if one["Name"].startswith("queue-work-")]
        assert "EventBridgeConfiguration" in s3.get_bucket_notification_configuration(Bucket=bucket)
        rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        assert {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in rules} == {
            "carriers/": 30, "carriers-output/": 30,
        }  # fmt: skip
        given = iam.get_role_policy(RoleName="training-nlp", PolicyName="shared-instances")["PolicyDocument"]
        assert f"arn:aws:s3:::{bucket}/carriers/carrier--nlp--shared--*/in/*" in json.dumps(given)
        assert not re.search("WORK_BUCKET|PROJECT|OWNER", json.dumps(given))
        queue = System(cloud).queue
        carriers = until(lambda: [carrier for name in ("one", "two") if (carrier := queue.job(name).carrier)][1:])
        assert carriers == [queue.job("one").carrier]
        (tmp_path / "go").touch()
