"""FailureReason: the text in which SageMaker describes the failure of a job."""

from local_cloud.sagemaker.job_processes.container.requirements import InstallError
from local_cloud.sagemaker.job_processes.instance import Instance

LONGEST = 1024  # characters of a FailureReason, SageMaker's limit
_TAIL = 8192  # bytes at the end of the output that are read
_LINES = 15
_TRACEBACK = "Traceback (most recent call last):"


def failure_reason(instance: Instance, exit_code: int) -> str:
    """Return the FailureReason of a script that failed, with its exit code and message.

    The message is the content of /opt/ml/output/failure, or the end of the script's output if there is no such file.
    """
    # SageMaker's own images know the user's command. With another entry point the command is not known.
    command = f'\nCommand "{" ".join(instance.script)[:200]}"' if instance.cluster.script else ""
    after = f'"{command}, exit code: {exit_code}'
    return _fitted(
        f'AlgorithmError: ExecuteUserScriptError:\nExitCode {exit_code}\nErrorMessage "', _message(instance), after
    )


def install_failure(error: InstallError) -> str:
    """Return the FailureReason of a job whose requirements cannot be installed."""
    return _fitted('AlgorithmError: InstallRequirementsError:\nExitCode 1\nErrorMessage "', str(error), '"')


def _fitted(before: str, message: str, after: str) -> str:
    # The end of the message is kept: a traceback ends with the error.
    return before + message[-(LONGEST - len(before) - len(after)) :] + after


def _message(instance: Instance) -> str:
    failure = instance.root / "output" / "failure"
    if failure.is_file() and (text := failure.read_text(errors="replace").strip()):
        return text
    with instance.output.open("rb") as file:
        file.seek(max(0, instance.output.stat().st_size - _TAIL))
        lines = file.read().decode(errors="replace").strip().splitlines()
    if _TRACEBACK in lines:
        return "\n".join(lines[lines.index(_TRACEBACK) :])
    return "\n".join(lines[-_LINES:])
