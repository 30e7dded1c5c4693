"""The progress of a job in SageMaker, from provisioning to the upload of its results, as users see it."""

from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from sagemaker_queue.cli import main
from tests.system.conftest import WAIT, System

PROVISIONING = 4.0  # seconds that the local cloud takes to get instances


@pytest.mark.thorough
def test_a_job_shows_what_sagemaker_does_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = tmp_path / "gate"
    with LocalCloud(slots=1, startup_delay=PROVISIONING) as cloud:
        system = System(cloud)
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", cloud.queue_url)
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        system.run("slow", WAIT.format(file=str(gate)))
        job = system.job("slow")
        assert (job.secondary_status, job.secondary_status_since) == ("Starting", job.started)
        capsys.readouterr()
        assert main(["ls", "--columns", "job,activity"]) == 0
        assert "provisioning" in capsys.readouterr().out
        assert main(["show", "slow"]) == 0
        assert "SageMaker is getting its instances (SecondaryStatus Starting, for " in capsys.readouterr().out
        system.wait("the job to train", lambda: system.job("slow").secondary_status == "Training")
        assert main(["ls", "--columns", "job,activity"]) == 0
        assert "provisioning" not in capsys.readouterr().out
        gate.touch()
        system.wait_state("slow", "completed")
        assert system.job("slow").secondary_status is None
