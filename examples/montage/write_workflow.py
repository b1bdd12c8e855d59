"""The whole of Montage as one task list, for `amfs run`.

    python write_workflow.py SKY [--tools auto|montagepy|debian] [--overlaps overlaps.tbl] > SKY/montage.tasks
    cd SKY && amfs run montage.tasks

A task list must name every mDiffFit, so the overlaps must be known before anything runs. They come from a table of an earlier run
(`--overlaps`) or, as in Montage's own mDAG, from the headers of the raw images: mImgtbl and mOverlaps run here, on the raw images.
`run_montage.py` needs neither: it reads the table when mOverlaps has run.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import ipac
import stages
import toolkit


def planned_overlaps(tools: toolkit.Tools, sky: Path) -> str:
    """The overlaps of the raw images, as the text of mOverlaps's table. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as scratch:
        images, overlaps = Path(scratch, "images.tbl"), Path(scratch, "overlaps.tbl")
        subprocess.run(tools.command("mImgtbl", str(sky / "raw"), str(images)), check=True, capture_output=True)
        # Sorted, so that the numbers of the images are those that imgtbl_reduce.py will give them.
        images.write_text(ipac.render(ipac.merge_images([ipac.parse(images.read_text())])))
        subprocess.run(tools.command("mOverlaps", str(images), str(overlaps)), check=True, capture_output=True)
        return overlaps.read_text()


def task_line(step: stages.Step) -> str:
    """One step as a line of AME's task list."""
    words = [step.id, "-b", step.argv[0]]
    words += ["-i", *step.inputs, "-o", *step.outputs, "-label", step.label]
    if step.arity:
        words += ["-reduce", str(step.arity)]
    return shlex.join([*words, "-a", *step.argv[1:]])


def task_list(tools: toolkit.Tools, raw: list[str], overlaps: str, arity: int = stages.ARITY) -> list[str]:
    steps = [*stages.first_half(tools, raw, arity=arity), *stages.second_half(tools, raw, overlaps, arity=arity)]
    return [task_line(step) for step in steps]


def main() -> int:
    parser = argparse.ArgumentParser(description="write Montage as a task list")
    parser.add_argument("sky", metavar="SKY", type=Path)
    parser.add_argument("--tools", choices=toolkit.CHOICES, default="auto")
    parser.add_argument("--overlaps", type=Path, help="the table of overlaps from an earlier run")
    parser.add_argument("--arity", type=int, default=stages.ARITY, help=f"files a reduction combines at a time (default {stages.ARITY})")
    options = parser.parse_args()
    try:
        tools = toolkit.find(options.tools)
        raw = sorted(f"raw/{path.name}" for path in (options.sky / "raw").glob("*.fits"))
        if not raw:
            raise FileNotFoundError(f"{options.sky} has no raw/*.fits: make a sky with make_sky.py first")
        overlaps = planned_overlaps(tools, options.sky) if options.overlaps is None else options.overlaps.read_text()
        print("\n".join(task_list(tools, raw, overlaps, options.arity)))
    except subprocess.CalledProcessError as error:
        print(f"write_workflow.py: {shlex.join(error.cmd)}: {(error.stderr or error.stdout or b'').decode()}", file=sys.stderr)
        return 1
    except (toolkit.NoMontage, OSError, ValueError) as error:
        print(f"write_workflow.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
