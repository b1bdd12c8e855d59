"""The ``amfs`` command: its subcommands, and the exit status of every error.

Owns the table of commands, the top-level help and the mapping from exceptions to exit codes. Must not import anything but the
standard library's cheapest parts at module level: ``amfs --help`` is answered from the table, and a command's module (and click
itself) is imported only when that command runs.

Exit codes are those of ``amfs.errors``; besides these 130 for Ctrl-C, 141 when the reader of the output closed it, 70 for a fault of amfs.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import click
    from click.shell_completion import CompletionItem

EXIT_SETUP = 5
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


#: The shell sets it when a command line is to be completed.
COMPLETE_VARIABLE = "_AMFS_COMPLETE"

#: Groups of ``amfs --help``, in its order.
RUN = "Run workflows"
QUEUE = "Parallel scripts"
FILES = "Files of a session"
TOGETHER = "Whole directories of a session"
CLUSTER = "Sessions and their nodes"
LOOK = "Look at workflows, runs and machines"


class Entry(NamedTuple):
    """One command: where it lives ("module:click command"), its group, and its line in the help."""

    where: str
    group: str
    help: str


COMMANDS: dict[str, Entry] = {
    "run": Entry("amfs.cli.run:run", RUN, "Run a workflow: a task list, JSON Lines, or plain command lines."),
    "map": Entry("amfs.cli.map:map_", RUN, "Run a command for each argument, as GNU parallel does."),
    "attach": Entry("amfs.cli.attach:attach", RUN, "Follow a run that was started with run --detach."),
    "translate": Entry("amfs.cli.translate:translate", RUN, "Convert a workflow between formats, or only check it."),
    "simulate": Entry("amfs.cli.simulate:simulate", RUN, "Run a workflow on a simulated cluster of any size."),
    "shell": Entry("amfs.cli.shell:shell", QUEUE, "Run bash, or a script, in the file system of a session."),
    "queue": Entry("amfs.cli.queue:queue", QUEUE, "Queue one task in a session."),
    "execute": Entry("amfs.cli.queue:execute", QUEUE, "Run what is queued, and wait for its end."),
    "shell-init": Entry("amfs.cli.queue:shell_init", QUEUE, "Print what makes bash, zsh or fish use a session."),
    "ls": Entry("amfs.cli.fs_list:ls", FILES, "List what is in the file system of a session."),
    "stat": Entry("amfs.cli.fs_list:stat", FILES, "Say all that is known of files there."),
    "tree": Entry("amfs.cli.fs_list:tree", FILES, "Draw directories and what is below them."),
    "cat": Entry("amfs.cli.fs_copy:cat", FILES, "Write files to standard output."),
    "put": Entry("amfs.cli.fs_copy:put", FILES, "Copy local files into the file system."),
    "get": Entry("amfs.cli.fs_copy:get", FILES, "Copy files out of it."),
    "cp": Entry("amfs.cli.fs_copy:cp", FILES, "Copy files in, out or within."),
    "mv": Entry("amfs.cli.fs_change:mv", FILES, "Rename files and directories."),
    "rm": Entry("amfs.cli.fs_change:rm", FILES, "Remove files and directories."),
    "mkdir": Entry("amfs.cli.fs_change:mkdir", FILES, "Make directories."),
    "find": Entry("amfs.cli.fs_find:find", FILES, "Find files by name, type, size or age."),
    "locate": Entry("amfs.cli.fs_find:locate", FILES, "Say on which nodes the bytes of files are."),
    "du": Entry("amfs.cli.fs_find:du", FILES, "Say how much directories hold."),
    "df": Entry("amfs.cli.fs_find:df", FILES, "Say how full the nodes are."),
    "scrub": Entry("amfs.cli.scrub:scrub", FILES, "Look whether the content of files is what was written."),
    "mount": Entry("amfs.cli.mount:mount", FILES, "Mount the file system of a session at a directory."),
    "umount": Entry("amfs.cli.umount:umount", FILES, "Unmount it; also what a killed node left behind."),
    "load": Entry("amfs.cli.load_dump:load", TOGETHER, "Load directories into the session, all nodes at the same time."),
    "dump": Entry("amfs.cli.load_dump:dump", TOGETHER, "Dump directories out of it."),
    "diff": Entry("amfs.cli.diff:diff", TOGETHER, "Say whether two directories have the same contents, whatever the names."),
    "multicast": Entry("amfs.cli.collective:multicast", TOGETHER, "Copy files to every node."),
    "gather": Entry("amfs.cli.collective:gather", TOGETHER, "Copy files to one node."),
    "allgather": Entry("amfs.cli.collective:allgather", TOGETHER, "Gather files on one node, then copy all of them to every node."),
    "scatter": Entry("amfs.cli.collective:scatter", TOGETHER, "Deal files out to the nodes, one after the other."),
    "reduce": Entry("amfs.cli.reduce:reduce", TOGETHER, "Combine many files into one with an associative command."),
    "shuffle": Entry("amfs.cli.shuffle:shuffle", TOGETHER, "Group the lines of many files by their key."),
    "up": Entry("amfs.cli.up:up", CLUSTER, "Start a session: node servers on this machine, or one per MPI rank."),
    "down": Entry("amfs.cli.down:down", CLUSTER, "Stop a session and remove what it left behind."),
    "clean": Entry("amfs.cli.clean:clean", CLUSTER, "Free what processes that died have left on this host."),
    "status": Entry("amfs.cli.status:status", CLUSTER, "Show sessions, their nodes and what they are doing."),
    "top": Entry("amfs.cli.top:top", CLUSTER, "Watch runs, nodes and tasks on a terminal."),
    "dashboard": Entry("amfs.cli.dashboard:dashboard", CLUSTER, "Watch them in a browser; metrics for Prometheus."),
    "scale": Entry("amfs.cli.scale:scale", CLUSTER, "More or fewer nodes for a running session."),
    "node": Entry("amfs.cli.node:node", CLUSTER, "Run one node server; join a session from any host."),
    "check": Entry("amfs.cli.check:check", LOOK, "Say what is wrong with Swift scripts, without running them."),
    "info": Entry("amfs.cli.info:info", LOOK, "Say what is in a workflow, without running it."),
    "graph": Entry("amfs.cli.graph:graph", LOOK, "Draw a workflow as SVG, Graphviz, Mermaid or PNG."),
    "explain": Entry("amfs.cli.explain:explain", LOOK, "Say why a task is not running, or how a file came to be."),
    "report": Entry("amfs.cli.report:report", LOOK, "Make an HTML page from the trace of a run."),
    "bench": Entry("amfs.cli.bench:bench", LOOK, "Measure this machine and amfs on it."),
    "completion": Entry("amfs.cli.completion:completion", LOOK, "Print the script that makes bash, zsh or fish complete amfs."),
}

DESCRIPTION = """\
Run workflows of ordinary programs that talk through files, with the files
between the tasks in memory.
"""

EXIT_STATUS = """\
0 all tasks finished; 1 some failed; 2 the command line or the
workflow is faulty, nothing ran; 3 stopped before the end; 4 no usable session;
5 this machine lacks something; 70 internal error; 130 interrupted.
"""

_HEAD = """\
Usage: amfs [--version] [--help] COMMAND [ARGS]...

"""

_TAIL = """
  "amfs COMMAND --help" explains a command.

Exit status: """


def groups() -> dict[str, list[str]]:
    """Names of commands by group, in the order of the help."""
    found: dict[str, list[str]] = {}
    for name, entry in COMMANDS.items():
        found.setdefault(entry.group, []).append(name)
    return found


def help_text() -> str:
    """The text of ``amfs --help``."""
    width = max(map(len, COMMANDS))
    text = _HEAD + "".join(f"  {line}\n" for line in DESCRIPTION.splitlines())
    for title, names in groups().items():
        text += f"\n{title}:\n" + "".join(f"  {name:<{width}}  {COMMANDS[name].help}\n" for name in names)
    return text + _TAIL + EXIT_STATUS


def load(name: str) -> click.Command:
    """Import the command ``name`` of the table."""
    from importlib import import_module

    module, _, attribute = COMMANDS[name].where.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


def group() -> click.Group:
    """The click group of all commands, each imported only when looked up."""
    import click

    class LazyGroup(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return load(cmd_name) if cmd_name in COMMANDS else None

        def get_help(self, ctx: click.Context) -> str:
            return help_text().rstrip()

        def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
            from click.shell_completion import CompletionItem

            names = [CompletionItem(name, help=entry.help) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
            # not Group's: it would import every command for its help
            return names + click.Command.shell_complete(self, ctx, incomplete)

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            name = args[0]
            if name not in COMMANDS and not name.startswith("-"):
                raise click.UsageError(_unknown(name), ctx)
            return super().resolve_command(ctx, args)

    return LazyGroup(
        "amfs",
        params=[click.Option(["--version"], is_flag=True, help="Show the version and exit.")],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        invoke_without_command=False,
    )


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    from amfs.errors import brief

    near = get_close_matches(name[:100], COMMANDS, 1)
    hint = f"did you mean 'amfs {near[0]}'?" if near else '"amfs --help" lists them'
    if len(name) < 4096 and os.path.exists(name):
        hint = f"to run that file: amfs run {name}"
    return f"no such command '{brief(name)}'; {hint}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``amfs ARGV`` and return its exit status; the console script's entry point. Raises nothing but SystemExit."""
    args = list(sys.argv[1:] if argv is None else argv)
    if (other := _other_package()) is not None:
        _say(other)
        return EXIT_SETUP
    if argv is not None:
        return guarded(lambda: _dispatch(args))
    gc.set_threshold(50_000, 20, 50)  # most of what a short command makes are modules, which stay
    try:
        return guarded(lambda: _dispatch(args))
    finally:
        gc.freeze()  # Python's end looks at nothing of it once more: a sixth of a run of one task


def _other_package() -> str | None:
    """Advice for the user if another project's package of the same name was installed over this one."""
    import amfs

    if getattr(amfs, "DISTRIBUTION", None) == "amfs-hpc":
        return None
    return (
        f"{amfs.__file__} is of another project, also called amfs, which was installed over this one; "
        "to mend it: pip uninstall -y amfs, then pip install --force-reinstall --no-deps amfs-hpc"
    )


def guarded(work: Callable[[], int]) -> int:
    """The exit status of ``work``, or that of its error, which is told in a line. Raises nothing but SystemExit."""
    _open_standard_streams()
    try:
        status = work()
        if sys.stdout is not None:
            sys.stdout.flush()  # here, so that a reader who left is noticed while we can still be quiet about it
        return status
    except KeyboardInterrupt:
        _say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _broken_pipe()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or error.filename is not None:
            return _failed(error)
        _say(f"cannot write the output: {error.strerror}")
        _broken_pipe()
        return EXIT_SETUP
    except Exception as error:  # the last line of defence: one line for the person, never a bare traceback
        return _failed(error)


def _open_standard_streams() -> None:
    """Give descriptors 0 to 2 that the caller closed somewhere to lead, or the next file opened gets their number and our output."""
    for number, name, mode in ((0, "", os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # the lowest free number, which is this one
            if name:
                setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115  (lives as long as we)


def _dispatch(args: list[str]) -> int:
    if os.environ.get(COMPLETE_VARIABLE) is None:
        if not args or args[0] in ("--help", "-h"):
            sys.stdout.write(help_text())
            return 0 if args else 2
        if args[0] in ("--version", "-V"):
            from amfs import __version__

            sys.stdout.write(f"amfs {__version__}\n")
            return 0
    from amfs.host.signals import exit_on_end, keep_interrupts

    exit_on_end()
    keep_interrupts()
    return invoke(group(), args, "amfs")


def invoke(command: click.Command, args: list[str], name: str) -> int:
    """Run ``command`` as the program ``name`` and return its exit status; faults of the command line are told. Raises what it raises."""
    import click

    streams = sys.stdout, sys.stderr
    try:
        result = command.main(args, prog_name=name, standalone_mode=False, obj=tuple(args))
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        sys.stdout, sys.stderr = streams  # click puts others in their place when the reader of one has gone, and would exit with 1
        raise BrokenPipeError from None
    except click.exceptions.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        from amfs.errors import brief

        error.message = brief(error.message)  # type: ignore[misc]  # click has no other way
        if isinstance(error, click.NoSuchOption) and error.ctx is not None and any(word.partition("=")[0] == "--on" for word in args):
            own = any(param.name == "more" for param in error.ctx.command.params)
            where = "after '--'" if own else "in --on-options 'OPTIONS'"
            error.message += f" Options of the batch system stand {where}."  # type: ignore[misc]
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else 0


def _failed(error: Exception) -> int:
    from amfs.errors import AmfsError, understood

    if os.environ.get("AMFS_DEBUG"):
        import traceback

        traceback.print_exception(error)
    error = understood(error)
    if isinstance(error, AmfsError):
        _say(str(error))
        return error.exit_code
    what = f"{type(error).__name__}: {error}".split("\n", 1)[0]
    _say(f"internal error: {what}; run again with AMFS_DEBUG=1 for the traceback")
    return EXIT_INTERNAL


def _broken_pipe() -> int:
    # The interpreter flushes stdout once more at exit; give it somewhere to go, or it complains.
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())
    os.close(null)
    return EXIT_BROKEN_PIPE


def _say(text: str) -> None:
    try:
        print("\n".join(f"amfs: {line}" for line in text.splitlines() or [""]), file=sys.stderr, flush=True)
    except BrokenPipeError:
        _broken_pipe()


if __name__ == "__main__":
    sys.exit(main())
