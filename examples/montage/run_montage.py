"""Montage through amfs: the mosaic of a sky, its intermediate files in memory.

    python run_montage.py SKY [--tools auto|montagepy|debian] [--slots N] [--session NAME] [--resume] [--uncorrected]

reads SKY/raw/*.fits and SKY/region.hdr and writes SKY/mosaic.fits and SKY/mosaic_area.fits. Which images overlap is known only when
mOverlaps has run; so this driver adds tasks in two goes, and the second depends on what it reads from the first. Images that are still
being projected then do not hold up anything but what needs them.

The journal SKY/montage.journal remembers what is done: after Ctrl-C, kill -9 or a crash the same command with --resume does the rest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import stages
import toolkit

import amfs
from amfs.runs.api import Handle


def submit(run: amfs.Session, steps: list[stages.Step]) -> list[Handle]:
    """Hand the steps to amfs, which starts each as soon as its inputs are there."""
    return run.submit_tasks(
        amfs.Task(step.id, tuple(step.argv), tuple(step.inputs), tuple(step.outputs), label=step.label, reduce=step.arity) for step in steps
    )


def make_mosaic(
    sky: Path,
    *,
    tools: str = "auto",
    slots: int | None = None,
    session: str | None = None,
    resume: bool = False,
    uncorrected: bool = False,
    arity: int = stages.ARITY,
    store: str = "",
    progress: bool = True,
) -> str:
    """Make SKY/mosaic.fits and return what it cost, as text (which ``progress`` has shown at the end, too).

    Raises toolkit.NoMontage when there is no Montage, FileNotFoundError when SKY holds no sky, amfs.TaskFailed when a stage fails.
    """
    kit = toolkit.find(tools)
    raw = sorted(f"raw/{path.name}" for path in (sky / "raw").glob("*.fits"))
    if not raw or not (sky / stages.REGION).is_file():
        raise FileNotFoundError(f"{sky} has no raw/*.fits and {stages.REGION}: make a sky with make_sky.py first")
    journal = sky / "montage.journal"
    with amfs.Session(slots=slots, session=session, base=sky, journal=journal, resume=resume, store=store, progress=progress) as run:
        *_, found = submit(run, stages.first_half(kit, raw, arity=arity))
        run.wait([found])
        overlaps = run.read("overlaps.tbl").decode()
        submit(run, stages.second_half(kit, raw, overlaps, uncorrected=uncorrected, arity=arity))
        run.wait()
    return run.summary()


def main() -> int:
    parser = argparse.ArgumentParser(description="make the mosaic of a sky through amfs")
    parser.add_argument("sky", metavar="SKY", type=Path, help="directory that make_sky.py wrote")
    parser.add_argument("--tools", choices=toolkit.CHOICES, default="auto")
    parser.add_argument("--slots", type=int, help="tasks at a time (default: the processors)")
    parser.add_argument("--session", help="run on the nodes that amfs up started under this name")
    parser.add_argument("--resume", action="store_true", help="do only what an earlier run that was cut off has not done")
    parser.add_argument("--uncorrected", action="store_true", help="also uncorrected.fits, the mosaic without background correction")
    parser.add_argument("--arity", type=int, default=stages.ARITY, help=f"files a reduction combines at a time (default {stages.ARITY})")
    parser.add_argument("--store", default="", help="where files are held meanwhile (default: in memory, /dev/shm)")
    options = parser.parse_args()
    try:
        make_mosaic(
            options.sky,
            tools=options.tools,
            slots=options.slots,
            session=options.session,
            resume=options.resume,
            uncorrected=options.uncorrected,
            arity=options.arity,
            store=options.store,
        )
    except (toolkit.NoMontage, OSError, amfs.AmfsError) as error:
        print(f"run_montage.py: {error}", file=sys.stderr)
        return 1
    print(f"The mosaic is {options.sky / 'mosaic.fits'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
