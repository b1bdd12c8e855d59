"""``amfs queue``, ``amfs execute``, ``amfs shell-init``: tasks that a session owns. ``queueing.client`` does the work."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from amfs.cli.completion import SHELLS, session_names

if TYPE_CHECKING:
    from amfs.display.progress import Progress

_OWN = {"--session": 2, "--status": 1, "--help": 1, "-h": 1}  # words that each takes


class _Words(click.Command):
    """A command whose words are another's: its own options come first, and the rest stays as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = 0
        while at < len(args) and (taken := _OWN.get(args[at].partition("=")[0])):
            at += 1 if "=" in args[at] else taken
        rest = super().parse_args(ctx, args[:at])
        ctx.params["words"] = tuple(args[at:])
        return rest


@click.command(cls=_Words, options_metavar="[--session NAME] [OPTIONS] [--] PROGRAM [ARGUMENT]... [-if FILE...] [-of FILE...]")
@click.option("--session", metavar="NAME", shell_complete=session_names, help="Session (default: $AMFS_SESSION, else the newest).")
@click.option("--status", is_flag=True, help="Say how many tasks are queued and how many run, and queue none.")
def queue(session: str | None, status: bool, words: tuple[str, ...]) -> int:
    """Queue one task in a session. It is recorded when the command has ended; "amfs execute" runs what is queued.

    The task runs in the session's file system, in the directory that corresponds to the current one of a mount, and finds its files there.

    \b
      -C DIR           stand in amfs:/DIR instead of the current directory
      -if FILE...      files that it reads, -of FILE... files that it makes: at the end of the line. Such a task runs without a mount.
      --to DIR         with -of: its outputs go to DIR on persistent storage, not to memory
      --data-arg N     run where argument N lies, if it is a file; default 1
      --even           do not look where its files lie
    """
    from amfs.queueing.client import Queue

    if status:
        state = Queue(session).ask()
        click.echo(f"{state.queued} queued, {state.batches} being executed")
        if state.snapshot is not None:
            from amfs.display.progress import progress_line

            click.echo(progress_line(state.snapshot))
        return 0
    found = Queue(session)
    here = os.getcwd()
    found.add([words], here, mount_around(here, found.session.name))
    return 0


def mount_around(path: str, session: str) -> str:
    """The mount of the session in which ``path`` lies, as a path; "" if there is none."""
    from amfs.host import fusemounts

    real = os.path.realpath(path)
    inside = [mount.path for mount in fusemounts.mounted(session) if real == mount.path or real.startswith(f"{mount.path}/")]
    return max(inside, key=len, default="")


@click.command(
    epilog="Exit status: 0 all tasks finished; 1 some failed; 3 stopped before the end; 4 no usable session; 130 or 143 interrupted."
)
@click.option("--session", metavar="NAME", shell_complete=session_names, help="Session (default: $AMFS_SESSION, else the newest).")
@click.option("--cancel", is_flag=True, help="End what runs, for whomever it runs, instead.")
@click.option("--quiet", "-q", is_flag=True, help="Only what fails.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", help="Progress and summary as text (default) or JSON Lines.")
def execute(session: str | None, cancel: bool, quiet: bool, output: str) -> int:
    """Run all tasks that were queued in a session, and wait for their end.

    The tasks belong to the session: they go on when this command is killed, and "amfs execute" waits for them again. Ctrl-C ends them.
    """
    from amfs.display.choice import make_progress
    from amfs.queueing.client import Queue

    if cancel:
        Queue(session).cancel()
        return 0
    return _Execution(make_progress(output=output, quiet=quiet)).run(Queue(session))


class _Execution:
    """One ``amfs execute``: shows what it is told, and passes a signal on."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.signal = 0

    def run(self, queue: Any) -> int:
        from amfs.queueing.execute import show

        def on_signal(number: int, frame: object) -> None:
            if self.signal:
                os._exit(128 + number)
            self.signal = number

        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        over = queue.execute(lambda event: show(self.progress, event), lambda: self.signal != 0)
        if over is None:
            self.progress.message("nothing is queued")
            return 0
        if self.signal:
            over.summary.exit_code = 128 + self.signal
        self.progress.finish(over.summary)
        return 128 + self.signal if self.signal else int(over.code)


@click.command("shell-init")
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--session", metavar="NAME", shell_complete=session_names, help="Session (default: $AMFS_SESSION, else the newest).")
def shell_init(shell: str, session: str | None) -> None:
    """Print what makes a shell use a session: variables, the AMFS_ commands, and a function AMFS_queue that starts no process.

    \b
    bash, zsh:  eval "$(amfs shell-init bash)"
    fish:       amfs shell-init fish | source
    """
    from amfs.client import discovery
    from amfs.host import fusemounts
    from amfs.queueing.shell import script

    record = discovery.find(session)
    here = mount_around(os.getcwd(), record.name)
    mounts = [mount.path for mount in fusemounts.mounted(record.name)]
    sys.stdout.write(script(shell, record, here or (mounts[0] if mounts else "")))

