"""The example of docs/run/several-instances.md: the number of processes does not change the result."""

from pathlib import Path

import pytest

from local_cloud.aws.stack import PROJECT
from sagemaker_queue.cli import main
from tests.system.conftest import System

pytestmark = pytest.mark.thorough


def test_the_example_trains_the_same_model_on_one_instance_and_on_two(
    system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")
    for variable, value in system.cloud.environment().items():
        monkeypatch.setenv(variable, value)
    folder = str(PROJECT / "examples/several_instances")
    weights = []
    for name, sizes in (("alone", "1"), ("elastic", "8,4,2")):
        options = ["--folder", folder, "-n", sizes, "--launcher", "torchrun", "--processes", "1", "--no-preflight"]
        assert main(["submit", *options, "--checkpoint", "--name", name, "--", "python", "train.py"]) == 0
        system.wait_state(name, "completed", "failed", "stopped")
        assert system.job(name).state == "completed", system.job(name).reason
        kept = system.queue.results(name, tmp_path / name, checkpoints=True)
        weights.append(torch.load(Path(kept, "step.pt"), weights_only=True))

    one, two = weights
    assert one["step"] == two["step"] == 40
    for parameter, value in one["model"].items():
        torch.testing.assert_close(two["model"][parameter], value)
    assert any("on 2 processes" in line for line in system.log("elastic-qstamp-1"))
