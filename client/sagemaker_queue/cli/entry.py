"""The ``smq`` command: see the queue, its fleet and its jobs, and change what is yours to change."""

import argparse
import os
import sys

import sagemaker_queue
from sagemaker_queue.cli.commands.config import add_config_commands
from sagemaker_queue.cli.commands.data import add_data_commands
from sagemaker_queue.cli.commands.fleet import add_fleet_commands
from sagemaker_queue.cli.commands.jobs import add_job_commands
from sagemaker_queue.cli.commands.logs import add_log_commands
from sagemaker_queue.cli.commands.submit import add_submit_commands
from sagemaker_queue.cli.commands.sweep import add_sweep_command
from sagemaker_queue.cli.commands.top import add_top
from sagemaker_queue.cli.completion import add_completion, answer_the_shell
from sagemaker_queue.cli.output import BROKEN_PIPE, DONE, EXIT_CODES, INTERRUPTED, complain
from sagemaker_queue.cli.parser import Commands, LocalCommand, Parser
from sagemaker_queue.config.queue_config import API_ID_VARIABLE, DEFAULT_FILE, PROFILE_VARIABLE, URL_VARIABLE
from sagemaker_queue.errors import QueueError

EXAMPLES = """\
  smq submit -- python train.py  run any command as a job
  smq sweep --grid lr=0.1,0.01 -- python train.py --lr {lr}
  smq ls                        the queue: who runs, who waits, in order
  smq ls --wide                 the same, with positions, owners and reasons
  smq ls -o job,age,reason      only these columns
  smq ls --waiting --mine       my jobs that wait; see smq ls --help
  smq ls --failed --json        the failed jobs, for a program
  smq top                       pools, projects and jobs on a live screen
  smq show job1                 all about job1: its attempts, its history
  smq events job1               what happened to job1, and why
  smq why job1                  why job1 waits, and what would change that
  smq logs -f job1              what job1 writes, through every preemption
  smq plan request.json         what would become of a job
  smq set-priority job1 5       let job1 run sooner
  smq hold job1                 keep job1 from starting; "release" lets it go
  smq cancel job1 job2          end two jobs
  smq status                    pools and projects: who may use what, who does
  smq policy apply policy.yaml  share the fleet in another way
  smq -c research ls            the queue of the profile "research"
"""

_EXIT_CODES = "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())

_EPILOG = f"""\
examples:
{EXAMPLES}
where the queue is (the first that is given):
  --url or --profile; {URL_VARIABLE} (with {API_ID_VARIABLE} for
  a VPC endpoint's address); {PROFILE_VARIABLE}; default = "NAME" in
  {DEFAULT_FILE}

exit codes:
{_EXIT_CODES}
"""


def main(argv: list[str] | None = None) -> int:
    """Run ``smq`` with the arguments (default: the process's own) and return its exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain of the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _run(argv: list[str] | None) -> int:
    parser = build_parser()
    answer_the_shell(parser)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as exit_:  # argparse has printed its help, or what was wrong
        return int(exit_.code or DONE)
    command: LocalCommand = arguments.run
    try:
        return command(arguments)
    except QueueError as error:
        return complain(error)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``smq``, from which docs/cli.md is made, too."""
    parser = Parser(
        prog="smq",
        description="The priority queue for SageMaker training jobs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"smq {sagemaker_queue.__version__}",
        help="print the version and end",
    )
    _add_queue_options(parser, default=None)
    anywhere = argparse.ArgumentParser(add_help=False)  # "smq ls -c research" is understood too
    _add_queue_options(anywhere, default=argparse.SUPPRESS)
    commands = Commands(parser, anywhere)
    add_job_commands(commands)
    add_submit_commands(commands)
    add_sweep_command(commands)
    add_log_commands(commands)
    add_fleet_commands(commands)
    add_top(commands)
    add_data_commands(commands)
    add_config_commands(commands)
    add_completion(commands)
    return parser


def _add_queue_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("-c", "--profile", metavar="NAME", default=default, help="the profile of the queue to use")
    parser.add_argument("--url", default=default, help="the address of the queue to use, up to and including the stage")
