"""``smq completion``: print the shell script that enables completion of ``smq``."""

import click

from sagemaker_queue.cli.completion import SHELLS, script
from sagemaker_queue.cli.output import DONE
from sagemaker_queue.cli.parser import argument, command


@command(
    "completion",
    help="complete commands, options and names of jobs at the Tab key",
    description="Print the code with which a shell completes commands, options, columns, and the names of jobs, "
    "groups, projects and instance types. One line in the shell's start file enables completion.",
    examples=[
        'eval "$(smq completion bash)"      in ~/.bashrc',
        'eval "$(smq completion zsh)"       in ~/.zshrc, below compinit',
        "smq completion fish | source       in ~/.config/fish/config.fish",
    ],
)
@argument("shell", metavar="SHELL", type=click.Choice(SHELLS), help="the shell: " + ", ".join(SHELLS))
def completion(shell: str) -> int:
    """Print the shell's script."""
    print(script(click.get_current_context().find_root().command, shell))
    return DONE
