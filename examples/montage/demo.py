"""What `make demo` runs: a sky, its mosaic through amfs, the pictures, and what it cost.

    python demo.py [--out demo-out] [--grid 5] [--size 300] [--check] [--tools auto|montagepy|debian] [--slots N] [--session NAME]

`--check` makes the mosaic a second time, serially and without amfs, and compares every pixel.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import compare
import make_sky
import picture
import run_montage
import serial
import toolkit

import amfs

MARK = ".amfs-demo"  # in a directory that this program made and may therefore empty


def prepare(out: Path) -> None:
    """An empty directory. Raises FileExistsError when there is something in it that no demo left there."""
    if out.exists() and any(out.iterdir()):
        if not (out / MARK).exists():
            raise FileExistsError(f"{out} holds other files: name another directory with --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


def check(out: Path, kind: str) -> bool:
    """Make the mosaic by hand, too, and say how the two compare."""
    work = out / "by-hand"
    start = time.perf_counter()
    by_hand = serial.make_mosaic(out, work, kind, uncorrected=True)
    seconds = time.perf_counter() - start
    names = ("mosaic.fits", "mosaic_area.fits", "uncorrected.fits")
    different = sum(compare.differing_pixels(out / name, work / name) for name in names)
    print(f"by hand, one after the other: {sum(by_hand.count.values())} programs in {seconds:.1f} s")
    print("compared with it: " + ("the same, pixel by pixel" if not different else f"{different} pixels DIFFER"))
    return not different


def demo(options: argparse.Namespace) -> bool:
    out: Path = options.out
    prepare(out)
    kind = toolkit.find(options.tools).kind
    names = make_sky.make_sky(out, grid=options.grid, size=options.size, seed=options.seed)
    print(f"sky: {len(names)} images of {options.size} x {options.size} pixels in {out / 'raw'}; Montage: {kind}", flush=True)
    start = time.perf_counter()
    run_montage.make_mosaic(out, tools=kind, slots=options.slots, session=options.session, uncorrected=True)
    seconds = time.perf_counter() - start
    mosaic, before = out / "mosaic.fits", out / "uncorrected.fits"
    picture.make_picture(mosaic, out / "mosaic.png")
    picture.make_picture(before, out / "uncorrected.png", like=mosaic)
    left, had = (compare.residual(path, out / "truth.fits") for path in (mosaic, before))
    print(f"mosaic in {seconds:.1f} s; left of the images' backgrounds: {left:.2f} counts rms (before correction {had:.1f})")
    same = check(out, kind) if options.check else True
    print(f"picture: {out / 'mosaic.png'} (before background correction: {out / 'uncorrected.png'})")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description="make a sky, its mosaic through amfs, and the picture")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="directory for everything made (default demo-out)")
    parser.add_argument("--grid", type=int, default=5, help="images per side (default 5)")
    parser.add_argument("--size", type=int, default=300, help="pixels per side of an image (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="make the mosaic serially, too, and compare every pixel")
    parser.add_argument("--tools", choices=toolkit.CHOICES, default="auto")
    parser.add_argument("--slots", type=int, help="tasks at a time (default: the processors)")
    parser.add_argument("--session", help="run on the nodes that amfs up started under this name")
    options = parser.parse_args()
    try:
        return 0 if demo(options) else 1
    except (toolkit.NoMontage, OSError, ValueError, subprocess.CalledProcessError, amfs.AmfsError) as error:
        print(f"demo.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
