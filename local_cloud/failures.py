"""FailureReason: what a user is told about a script that failed."""

from local_cloud.container import Instance

LONGEST = 1024  # characters, SageMaker's limit
_TAIL = 8192  # bytes of output that are looked at
_LINES = 15
_TRACEBACK = "Traceback (most recent call last):"


def failure_reason(instance: Instance, exit_code: int) -> str:
    """The exit code and the script's own words: /opt/ml/output/failure if it wrote that, else the end of its output."""
    command = " ".join(instance.command)
    before = f'AlgorithmError: ExecuteUserScriptError:\nExitCode {exit_code}\nErrorMessage "'
    after = f'"\nCommand "{command[:200]}", exit code: {exit_code}'
    room = LONGEST - len(before) - len(after)
    # The end of the words is kept: a traceback ends with the error.
    return before + _words(instance)[-room:] + after


def _words(instance: Instance) -> str:
    failure = instance.root / "output" / "failure"
    if failure.is_file() and (text := failure.read_text(errors="replace").strip()):
        return text
    with instance.output.open("rb") as file:
        file.seek(max(0, instance.output.stat().st_size - _TAIL))
        lines = file.read().decode(errors="replace").strip().splitlines()
    if _TRACEBACK in lines:
        return "\n".join(lines[lines.index(_TRACEBACK) :])
    return "\n".join(lines[-_LINES:])
