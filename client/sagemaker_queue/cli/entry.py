"""The entry point of ``smq``: its root command with all subcommands, and its exit codes."""

from __future__ import annotations

import os
import sys

import click

import sagemaker_queue
from sagemaker_queue.cli.commands.accounting.failures import failures
from sagemaker_queue.cli.commands.accounting.history import history
from sagemaker_queue.cli.commands.accounting.usage import usage
from sagemaker_queue.cli.commands.completion import completion
from sagemaker_queue.cli.commands.config import config
from sagemaker_queue.cli.commands.data import data
from sagemaker_queue.cli.commands.doctor import doctor
from sagemaker_queue.cli.commands.drains import drain, undrain
from sagemaker_queue.cli.commands.fleet import status
from sagemaker_queue.cli.commands.interactive.shell import shell
from sagemaker_queue.cli.commands.jobs import cancel, events, hold, release, requeue, set_priority, show, why
from sagemaker_queue.cli.commands.logs import logs
from sagemaker_queue.cli.commands.ls import ls
from sagemaker_queue.cli.commands.policy import policy
from sagemaker_queue.cli.commands.results.checkpoints_group import checkpoints
from sagemaker_queue.cli.commands.results.get import get
from sagemaker_queue.cli.commands.results.wait import wait
from sagemaker_queue.cli.commands.run import proxy, run
from sagemaker_queue.cli.commands.simulate import simulate
from sagemaker_queue.cli.commands.submit import plan, resubmit, submit
from sagemaker_queue.cli.commands.sweep import sweep
from sagemaker_queue.cli.commands.watching.notify import notify
from sagemaker_queue.cli.commands.watching.top import top
from sagemaker_queue.cli.commands.watching.ui import ui
from sagemaker_queue.cli.completion import PROGRAM, complete_for_shell
from sagemaker_queue.cli.output import BROKEN_PIPE, EXIT_CODES, INTERRUPTED, escaped_output, print_error
from sagemaker_queue.cli.parser import Group
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import did_you_mean
from sagemaker_queue.queue.config.queue_config import API_ID_VARIABLE, DEFAULT_FILE, PROFILE_VARIABLE, URL_VARIABLE

COMMANDS = (
    *(ls, show, events, why, set_priority, hold, release, requeue, cancel),
    *(submit, resubmit, plan, sweep, run, proxy, logs, shell, wait, get, checkpoints),
    *(status, policy, drain, undrain, top, ui, notify, history, usage, failures),
    *(simulate, data, config, doctor, completion),
)

EXAMPLES = """\
smq submit -- python train.py  run any command as a job
smq sweep --grid lr=0.1,0.01 -- python train.py --lr {lr}
smq run -- airflow scheduler   run a program whose training jobs go through the queue
smq proxy -- java -jar a.jar   the same for any language
smq ls                        running and waiting jobs, in the order of the queue
smq ls --wide                 the same, with positions, projects and owners
smq ls -o job,age,reason      only these columns
smq ls --waiting --mine       my waiting jobs; see smq ls --help
smq ls --failed --json        the failed jobs, for a program
smq top                       pools, projects and jobs on a live screen
smq ui                        the same in a browser, over time
smq notify                    notices when my jobs start, fail or finish
smq show job1                 all facts about job1, its attempts and history
smq events job1               the history of job1, with causes
smq why job1                  why job1 waits, and how to start it sooner
smq logs -f job1              the log of job1, through every preemption
smq shell job1                a shell in job1 while it runs
smq wait job1 && smq get job1  the results of job1, when it has finished
smq checkpoints job1          the checkpoints of job1, with their sizes
smq plan request.json         what would happen to a job (dry run)
smq set-priority job1 5       a higher priority for job1
smq hold job1                 put job1 on hold; "smq release" ends the hold
smq requeue job1              stop job1: it waits again, and resumes later
smq cancel job1 job2          cancel two jobs
smq status                    pools and projects: quotas and used instances
smq policy apply policy.yaml  apply another policy
smq plan --capacity p5=10     the effect of another number of instances
smq history --since 30d       finished attempts: owners, runtimes, instances
smq usage --by owner          usage and cost by owner
smq failures --since 7d       failures by class, and the lost hours
smq simulate trace.csv        a simulation of jobs, without a queue
smq -c research ls            the queue of the profile "research"
"""


class Smq(Group):
    """The root command, with the sources of the queue's address and the exit codes in its help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, the sources of the queue's address, and the exit codes."""
        super().format_epilog(ctx, formatter)
        with formatter.section("address of the queue (the first that is given)"):
            formatter.write_text(
                f"--url or --profile; {URL_VARIABLE} (with {API_ID_VARIABLE} for a VPC endpoint's address); "
                f'{PROFILE_VARIABLE}; default = "NAME" in {DEFAULT_FILE}'
            )
        with formatter.section("exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def main(argv: list[str] | None = None) -> int:
    """Run ``smq`` with the arguments (default: the process's own) and return its exit code."""
    try:
        with escaped_output():
            code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Redirect stdout, because Python flushes stdout again at exit, and would print another error about the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _run(argv: list[str]) -> int:
    """Run the root command; unlike click's own main(), print nothing about Ctrl-C and a broken pipe."""
    root = build_parser()
    complete_for_shell(root)
    try:
        with root.make_context(PROGRAM, argv) as context:
            return int(root.invoke(context))
    except click.exceptions.Exit as end:  # after --help and --version
        return end.exit_code
    except click.UsageError as error:
        context = error.ctx or click.Context(root, info_name=PROGRAM)
        print(f"{context.get_usage()}\n{context.command_path}: error: {_message(error)}", file=sys.stderr)
        return error.exit_code
    except QueueError as error:
        return print_error(error)


# Hints for options that do not exist, but that users expect: other tools or a column of smq ls have the name.
_KNOWN_ELSEWHERE = {
    "--user": "Use --owner, which accepts the names in the column User.",
    "--users": "Use --owner, which accepts the names in the column User.",
    "--watch": "Use smq top, which shows the queue continuously.",
}


def _message(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        if error.option_name in _KNOWN_ELSEWHERE:
            return f"There is no option {error.option_name}. {_KNOWN_ELSEWHERE[error.option_name]}"
        return f"There is no option {error.option_name}.{did_you_mean(error.option_name, error.possibilities or ())}"
    return error.format_message()


def build_parser() -> Group:
    """Return the root command of ``smq``. ``cli.reference`` generates docs/reference/cli from this command."""
    root = Smq(
        PROGRAM,
        help="The priority queue for SageMaker training jobs.",
        examples=EXAMPLES.splitlines(),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    version = click.version_option(
        sagemaker_queue.__version__, message=f"{PROGRAM} %(version)s", help="print the version and end"
    )
    version(root)
    for command in COMMANDS:
        root.add_command(command)
    return root
