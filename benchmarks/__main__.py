"""``benchmarks NAME``: one measurement. Owns the table of them; a module is imported when its command runs."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from amfs.cli.main import guarded, invoke

#: Name -> (module of the command, its line in the help).
COMMANDS = {
    "dispatch": ("amfs.cli.bench", "Tasks and transfers beside xargs, a bare C loop and raw TCP (also: amfs bench dispatch)."),
    "costs": ("amfs.cli.bench", "What amfs simulate needs to know of this machine (also: amfs bench costs)."),
    "envelope": ("benchmarks.commands.files", "File operations of mounts beside tmpfs and a disk."),
    "metadata": ("benchmarks.commands.metadata", "The steps of mdtest on mounts beside tmpfs."),
    "filecopy": ("benchmarks.commands.files", "One task writes, one reads: placement of data and of tasks."),
    "storage": ("benchmarks.commands.study", "Many files to and from S3, HDFS and amfs, beside a local disk."),
    "network": ("benchmarks.commands.study", "Files from each node of a session to each other one."),
    "staging": ("benchmarks.commands.staging", "Real programs whose tasks stage their own files, beside data that a session shares."),
    "urls": ("benchmarks.commands.urls", "Load and dump of a bucket beside obstore alone."),
    "striping": ("benchmarks.commands.files", "How evenly whole files and stripes fill the nodes."),
    "hashing": ("benchmarks.commands.files", "How evenly unequal nodes share the partitions, beside other hashes, and what moves."),
    "elastic": ("benchmarks.commands.elastic", "Policies that add and remove nodes beside all nodes from begin to end."),
    "joining": ("benchmarks.commands.joining", "Until a node that is added works, and what others wait while its share moves."),
    "montage": ("benchmarks.commands.montage", "Montage beside make and Makeflow, and beside what its tasks took."),
    "spill": ("benchmarks.commands.spill", "Files that are several times the memory limit, beside a disk."),
    "collective": ("benchmarks.commands.collective", "Multicast, gather, allgather, scatter, and the cost model."),
    "shuffle": ("benchmarks.commands.collective", "The partitioner and whole shuffles."),
    "functions": ("benchmarks.commands.functions", "Python functions beside ProcessPoolExecutor, Dask and Ray."),
    "watch": ("benchmarks.commands.watching", "What it costs a run to be watched, in turn with the same run unwatched."),
    "queue": ("benchmarks.commands.queue", "What queueing a task costs in each shell."),
    "swift": ("benchmarks.commands.scripts", "What Swift scripts cost."),
    "translate": ("benchmarks.commands.translation", "Reading workflows: CPU time and memory."),
    "simulate": ("benchmarks.commands.translation", "Predicted run times beside real replays."),
}


class Benchmarks(click.Group):
    """The group of the table's commands, each imported when it is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.bench.commands[cmd_name] if cmd_name in ("dispatch", "costs") else getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Measurements"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def main() -> int:
    """Run the measurement that the command line names; the exit status is that of ``amfs``."""
    group = Benchmarks("benchmarks", help="Measure amfs beside its peers and the limits of this machine.")
    return guarded(lambda: invoke(group, sys.argv[1:], "python -m benchmarks"))


if __name__ == "__main__":
    sys.exit(main())
