"""The progress of a job in SageMaker, from provisioning to the upload of its results, as users see it."""

from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from sagemaker_queue.cli import main
from tests.system.conftest import WAIT, System

NEVER = 86_400.0  # seconds of provisioning, which no test waits for


@pytest.mark.thorough
def test_a_running_job_reports_the_stages_that_sagemaker_reports(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    system.run("job", WAIT.format(file=str(gate)))
    system.wait_training("job")
    job = system.job("job")
    assert job.started
    assert job.secondary_status_since
    assert job.secondary_status_since >= job.started.replace(microsecond=0)
    gate.touch()
    system.wait_state("job", "completed")
    assert system.job("job").secondary_status is None


@pytest.mark.thorough
def test_a_job_without_instances_yet_is_shown_as_provisioning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> str:
        capsys.readouterr()
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    with LocalCloud(slots=1, startup_delay=NEVER) as cloud:
        system = System(cloud)
        for name, value in {**cloud.environment(), "SAGEMAKER_QUEUE_URL": cloud.queue_url}.items():
            monkeypatch.setenv(name, value)
        system.run("slow")
        job = system.job("slow")
        assert (job.secondary_status, job.secondary_status_since) == ("Starting", job.started)
        assert "provisioning" in printed("ls", "--columns", "job,activity")
        assert "SageMaker is getting its instances (SecondaryStatus Starting, for " in printed("show", "slow")
        system.queue.cancel("slow")
        system.wait_state("slow", "stopped")
