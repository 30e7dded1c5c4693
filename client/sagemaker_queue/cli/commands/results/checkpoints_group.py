"""``smq checkpoints``: list the checkpoints of a job, and remove old ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.arguments import job_argument
from sagemaker_queue.cli.completion import all_job_names
from sagemaker_queue.cli.output import DONE, REFUSED, confirmed, is_interactive, print_json, width
from sagemaker_queue.cli.parser import Group, flag, json_flag, option, with_queue
from sagemaker_queue.cli.progress_bars import TransferProgress
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import amount, file_size
from sagemaker_queue.presentation.text.checkpoint_text import checkpoints_page, checkpoints_table
from sagemaker_queue.workflows.saved_checkpoints import checkpoint_json, list_checkpoints, prunable, remove_checkpoints

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sagemaker_queue.queue.client import QueueClient

_LIST = "list"


class CheckpointsGroup(Group):
    """The command ``checkpoints``, which runs the subcommand ``list`` if its first argument is the name of a job."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the subcommand ``list`` before a job's name."""
        words = iter(args)
        for word in words:
            if word in ("-h", "--help"):
                break
            if word in ("-c", "--profile", "--url"):
                next(words, None)
            elif not word.startswith("-"):
                args = args if word in self.commands else [_LIST, *args]
                break
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the subcommands and the names of jobs that begin with ``incomplete``."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        names = all_job_names(ctx, self.params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, names)]


checkpoints = CheckpointsGroup(
    "checkpoints",
    short_help="list the checkpoints of a job, or remove old ones",
    help="List the checkpoints that a job has saved in S3, or remove old ones. smq checkpoints JOB is short for smq "
    "checkpoints list JOB. smq resubmit JOB --from STEP starts another job from a checkpoint.",
    usage="[list | prune] JOB [OPTIONS]",
    examples=["smq checkpoints job1", "smq checkpoints prune job1 --keep 3"],
)


@checkpoints.subcommand(
    _LIST,
    help="list the checkpoints of a job",
    description="List the checkpoints in the checkpoint folder of a job: step, layout, size, age, and the "
    "checkpoint from which the next attempt resumes. Known layouts: PyTorch Lightning, the Hugging Face "
    "Trainer, DeepSpeed, torch.distributed.checkpoint (FSDP), Orbax, and files and folders such as "
    "step-500.pt. A checkpoint with missing or temporary files is marked as incomplete.",
    examples=["smq checkpoints job1", "smq checkpoints list job1 --json"],
)
@job_argument
@json_flag()
@with_queue
def list_command(queue: QueueClient, name: str, as_json: bool) -> int:
    """Print the checkpoints of a job."""
    listed = list_checkpoints(queue, name)
    if as_json:
        print_json(listed.to_json())
    else:
        print(checkpoints_page(listed, width()))
    return DONE


@checkpoints.subcommand(
    "prune",
    help="remove old checkpoints of a job",
    description="Remove the checkpoints of a job except the newest N complete ones of each folder. On a terminal, "
    "the command asks first; without a terminal, --yes is needed. Checkpoints from which a job may "
    "resume always stay: the newest complete one, also if it is the only one that was last written more "
    "than 15 minutes ago, the one that DeepSpeed's file latest names, and files without a step. So the "
    "command is safe while the job or another job with the same folder waits or runs. Incomplete "
    "checkpoints are removed if they are older than the newest complete one and were last written more "
    "than an hour ago. Your own AWS credentials need s3:DeleteObject.",
    examples=["smq checkpoints prune job1 --keep 3 --dry-run", "smq checkpoints prune job1 --keep 3 --yes"],
)
@job_argument
@option(
    "--keep", metavar="N", type=click.IntRange(min=1), required=True, help="number of the newest checkpoints to keep"
)
@flag("--dry-run", help="list the checkpoints that would be removed; remove nothing")
@flag("--yes", help="do not ask for confirmation")
@json_flag("print the removed checkpoints as JSON")
@with_queue
def prune(queue: QueueClient, name: str, keep: int, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove old checkpoints, after a question on a terminal."""
    listed = list_checkpoints(queue, name)
    chosen = prunable(listed, keep)
    count, size = amount(len(chosen), "checkpoint"), file_size(sum(one.size for one in chosen))
    must_confirm = bool(chosen) and not (dry_run or yes)
    if must_confirm and (as_json or not is_interactive()):
        raise InvalidOption(f"This would remove {count} of {listed.job} ({size}): --yes removes, --dry-run lists.")
    if not as_json and chosen:
        print(checkpoints_table(chosen, width()))
    if must_confirm and not confirmed(f"Remove {count} of {listed.job} ({size}) from {listed.address}?"):
        print("Nothing is removed.")
        return REFUSED
    if chosen and not dry_run:
        remove_checkpoints(queue, listed, chosen, partial(TransferProgress, "Removing"))
    if as_json:
        removed = [checkpoint_json(one) for one in chosen]
        print_json({"job": listed.job, "address": listed.address, "dryRun": dry_run, "removed": removed})
    else:
        verb = "would be removed" if dry_run else "removed"
        remaining = amount(len(listed) - len(chosen), "checkpoint")
        print(
            f"{count} of {listed.job} {verb}, {size}; {remaining} left"
            if chosen
            else f"Nothing to remove; {remaining} left"
        )
    return DONE
