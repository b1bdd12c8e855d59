"""``amfs completion``: the script that makes a shell complete amfs command lines, and what arguments complete to.

Owns the choice of shells. The scripts are click's: they call ``amfs`` with ``_AMFS_COMPLETE`` set, and ``cli.main`` hands such a call
to click.
Only the standard library and click at module level: a shell runs this for every press of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")


def local_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete to local files, as the shell itself does it; paths of a session (``amfs:/…``) are left as they are."""
    from click.shell_completion import CompletionItem

    return [] if incomplete.startswith("amfs:") else [CompletionItem(incomplete, type="file")]


def session_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete to the names of sessions that have a record on this host, whether they live or not."""
    from click.shell_completion import CompletionItem

    from amfs.errors import AmfsError
    from amfs.net import records

    try:
        names = [record.name for record in records.list_all()]
    except (AmfsError, OSError):
        return []  # no message may appear in the middle of a command line
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that makes a shell complete amfs commands, options and files.

    \b
    bash:  amfs completion bash > ~/.local/share/bash-completion/completions/amfs
    zsh:   amfs completion zsh > "${fpath[1]}/_amfs"
    fish:  amfs completion fish > ~/.config/fish/completions/amfs.fish
    """
    from click.shell_completion import get_completion_class

    from amfs.cli.main import COMPLETE_VARIABLE, group

    made = get_completion_class(shell)
    assert made is not None  # click has these three
    click.echo(made(group(), {}, "amfs", COMPLETE_VARIABLE).source())
