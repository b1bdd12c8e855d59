"""Points for K-means, always the same: points.py COUNT FILE. Lines "x y", around 25 places, in no order."""

from __future__ import annotations

import sys

import numpy as np


def main(count: str, file: str) -> None:
    rng = np.random.default_rng(1)
    places = np.stack(np.meshgrid(range(5), range(5)), -1).reshape(-1, 2)
    points = places[rng.integers(len(places), size=int(count))] + rng.normal(scale=0.25, size=(int(count), 2))
    with open(file, "w") as out:
        out.writelines(f"{x:.6f} {y:.6f}\n" for x, y in points)


if __name__ == "__main__":
    main(*sys.argv[1:])
