"""Are two mosaics the same, and how good is one?

python compare.py ONE.fits OTHER.fits          the same pixel by pixel (exit code 0) or not (1); with their area images
python compare.py --truth truth.fits M.fits…   rms of what is left of the backgrounds in each mosaic, in counts
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import minifits
import numpy as np


def differing_pixels(one: Path, other: Path) -> int:
    """Number of pixels whose bits differ in value; a pixel that is blank in both is the same. Raises ValueError for another size."""
    a, b = minifits.read(one)[0], minifits.read(other)[0]
    if a.shape != b.shape:
        raise ValueError(f"{one} is {a.shape[1]} x {a.shape[0]} pixels, {other} {b.shape[1]} x {b.shape[0]}")
    return int(np.count_nonzero(~((a == b) | (np.isnan(a) & np.isnan(b)))))


def residual(mosaic: Path, truth: Path) -> float:
    """Rms of mosaic minus truth, in counts, after the one plane that no background model can know has been taken away.

    Medians of blocks of 12 x 12 pixels, as stars and noise say nothing of backgrounds.
    """
    difference = minifits.read(mosaic)[0] - minifits.read(truth)[0]
    block = 12
    rows, columns = (n // block for n in difference.shape)
    blocks = difference[: rows * block, : columns * block].reshape(rows, block, columns, block)
    blocks = blocks.transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    whole = np.isfinite(blocks).all(axis=2)
    y, x = np.nonzero(whole)
    values = np.median(blocks[whole], axis=1)
    plane = np.column_stack([x, y, np.ones(len(x))])
    fitted, *_ = np.linalg.lstsq(plane, values, rcond=None)
    return float(np.std(values - plane @ fitted))


def main() -> int:
    parser = argparse.ArgumentParser(description="compare mosaics")
    parser.add_argument("mosaics", metavar="MOSAIC", nargs="+", type=Path)
    parser.add_argument("--truth", type=Path)
    options = parser.parse_args()
    try:
        if options.truth is not None:
            for mosaic in options.mosaics:
                print(f"{mosaic}: {residual(mosaic, options.truth):.2f} counts rms left of the backgrounds")
            return 0
        if len(options.mosaics) != 2:
            parser.error("two mosaics to compare, or --truth")
        worst = 0
        for one, other in (options.mosaics, [path.with_name(path.stem + "_area.fits") for path in options.mosaics]):
            count = differing_pixels(one, other)
            print(f"{one.name} and {other.name}: " + ("the same pixel by pixel" if not count else f"{count} pixels differ"))
            worst = max(worst, count)
        return 1 if worst else 0
    except (ValueError, OSError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
