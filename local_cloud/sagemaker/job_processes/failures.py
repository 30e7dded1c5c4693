"""FailureReason: the texts in which SageMaker describes failures of jobs, and the log lines of failed GPUs.

The address beside each text is its source, a page or an issue thread. AWS documents only some prefixes:
CapacityError (https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_capacity.html), and
AlgorithmError and ClientError (https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html).
"""

import builtins
import uuid

from botocore.exceptions import BotoCoreError, ClientError

from local_cloud.sagemaker.job_processes.container.requirements import InstallError
from local_cloud.sagemaker.job_processes.instance import Instance

LONGEST = 1024  # characters of a FailureReason, SageMaker's limit
OUT_OF_MEMORY = 137  # exit code after SIGKILL, which the kernel sends if memory is exhausted
ABORTED = 134  # exit code after SIGABRT, which PyTorch's NCCL watchdog causes after a CUDA error
_MOST_OUTPUT = 4 * 1024 * 1024  # bytes of the output that are read

# https://github.com/DIAGNijmegen/rse-grand-challenge/issues/2631
CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
# https://github.com/aws/sagemaker-python-sdk/issues/70
INTERNAL = "InternalServerError: We encountered an internal error. Please try again."
# The prefix: https://docs.aws.amazon.com/sagemaker/latest/dg/training-plan-utilization-for-training-jobs.html
NO_PLAN_CAPACITY = (
    "InsufficientCapacityError: The training plan has ended before it had the requested instances for the training job."
)

# In the toolkit's error, the message of a failed script begins at the first line with one of these words:
# https://github.com/aws/sagemaker-training-toolkit, src/sagemaker_training/__init__.py and process.py
_ERRORS = tuple(name for name in dir(builtins) if "Error" in name or "Exception" in name)
_KILLED = "OutOfMemory: Process killed by SIGKILL (signal 9)"

# The first line: https://github.com/NVIDIA/gpu-operator/issues/1146
# The second line: https://github.com/DIAGNijmegen/rse-grand-challenge/issues/2836, from a SageMaker job
HARDWARE_LINES = (
    "NVRM: Xid (PCI:0000:07:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been "
    "detected on GPU in the framebuffer at physAddr 0x7fffa8860 partition 7, subpartition 1.",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
)


# The form of a UUID: https://github.com/4paradigm/k8s-vgpu-scheduler/issues/25
_GPU_LINE = "GPU 0: NVIDIA A10G (UUID: {})"  # a line of `nvidia-smi -L`


def hardware_lines(machine: str) -> list[str]:
    """Return the log lines of a failed GPU. The GPU's UUID depends only on its machine."""
    return [_GPU_LINE.format(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, machine)}"), *HARDWARE_LINES]


def failure_reason(instance: Instance, exit_code: int) -> str:
    """Return the FailureReason of a container that has ended with this exit code.

    SageMaker cites the beginning of /opt/ml/output/failure, and nothing of the log:
    https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-signal-success-failure.html and
    https://github.com/aws-samples/amazon-sagemaker-ml-pipeline-deploy-with-terraform/issues/12. The training toolkit
    writes the file for a script.
    """
    failure = instance.root / "output" / "failure"
    if failure.is_file() and (text := failure.read_text(errors="replace").strip()):
        return _algorithm_error(text, exit_code)
    if instance.cluster.entrypoint:
        return killed(exit_code)
    # The toolkit itself ends with 1, whatever the script's exit code is: sagemaker_training/trainer.py.
    command = " ".join(instance.script)[:200]
    return _algorithm_error(_called_process_error("ExecuteUserScriptError", exit_code, _message(instance), command), 1)


def killed(exit_code: int) -> str:
    """Return the FailureReason of a container that ended without a message, such as a killed one."""
    return _algorithm_error("", exit_code)


def install_failure(error: InstallError) -> str:
    """Return the FailureReason of a job whose requirements cannot be installed."""
    command = "python -m pip install -r requirements.txt"
    return _algorithm_error(_called_process_error("InstallRequirementsError", 1, str(error)[-600:], command), 1)


def unable_to_download(uri: str, error: ClientError | BotoCoreError) -> str:
    """Return the message about an input that cannot be downloaded: its address, and the code and text of S3's error.

    https://github.com/aws/amazon-sagemaker-examples/issues/4384
    """
    cause = str(error)
    if isinstance(error, ClientError):
        cause = "{Code}: {Message}".format(**{"Code": "Unknown", "Message": ""} | error.response.get("Error", {}))
    return f"Data download failed:Unable to download object {uri} ({cause})"


def _algorithm_error(message: str, exit_code: int) -> str:
    before, after = "AlgorithmError: ", f", exit code: {exit_code}"
    return before + message[: LONGEST - len(before) - len(after)] + after


def _called_process_error(kind: str, exit_code: int, message: str, command: str) -> str:
    """Return the text of an error of the toolkit: sagemaker_training/errors.py."""
    extra = f'\nExtraInfo "{_KILLED}"' if exit_code == OUT_OF_MEMORY else ""
    return f'{kind}:\nExitCode {exit_code}\nErrorMessage "{message}"{extra}\nCommand "{command}"'


def _message(instance: Instance) -> str:
    """Return the script's output, each line once, from the first line that has the name of an error; else empty."""
    with instance.output.open("rb") as file:
        lines = file.read(_MOST_OUTPUT).decode(errors="replace").splitlines()
    first = next((number for number, line in enumerate(lines) if any(word in line for word in _ERRORS)), len(lines))
    return "\n".join(dict.fromkeys(line.strip(" :") for line in lines[first:]))
