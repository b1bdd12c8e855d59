"""A picture of a mosaic: asinh stretch, the colours of a nebula, north up and east left.

    python picture.py MOSAIC.fits OUT.png [--size 900] [--like OTHER.fits]

``--like`` takes black and white from another mosaic, so that two pictures can be compared. Needs Pillow.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import minifits
import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Brightness from 0 to 1, and the colour there.
_COLOURS = (
    (0.00, (4, 5, 12)), (0.12, (10, 14, 38)), (0.28, (28, 40, 92)), (0.44, (88, 58, 128)), (0.58, (178, 78, 108)), (0.72, (236, 132, 88)),
    (0.85, (252, 204, 138)), (1.00, (255, 252, 244)),
)  # fmt: skip


def levels(data: NDArray[np.float64]) -> tuple[float, float, float]:
    """Counts shown as black, counts over which the stretch turns from linear to logarithmic, counts shown as white."""
    seen = data[np.isfinite(data)]
    black, middle, white = np.percentile(seen, [0.5, 75.0, 99.93])
    return float(black) - 2.0, max(float(middle - black), 1.0), float(white)


def draw(data: NDArray[np.float64], stretch: tuple[float, float, float], size: int) -> Image.Image:
    """The picture, ``size`` pixels wide, with a palette of 256 colours (a third of the bytes of full colour); blank pixels are black."""
    black, soft, white = stretch
    blank = ~np.isfinite(data)
    bright = np.arcsinh((np.where(blank, black, data) - black).clip(0.0) / soft) / np.arcsinh((white - black) / soft)
    shade = 1 + np.rint(254 * bright.clip(0.0, 1.0) ** 1.3)
    shade[blank] = 0
    # FITS counts rows from the bottom, pictures from the top.
    image = Image.fromarray(shade[::-1].astype(np.uint8))
    if size != data.shape[1]:
        image = image.resize((size, round(size * data.shape[0] / data.shape[1])), Image.Resampling.BOX)
    at, colours = zip(*_COLOURS, strict=True)
    palette = np.stack([np.interp(np.arange(255) / 254, at, [colour[i] for colour in colours]) for i in range(3)], axis=-1)
    image.putpalette([0, 0, 0, *np.rint(palette).astype(int).ravel().tolist()])
    return image


def make_picture(mosaic: Path, png: Path, *, size: int = 900, like: Path | None = None) -> None:
    """Write the picture of ``mosaic``. Raises OSError and ValueError when a file cannot be read or is no image."""
    data = minifits.read(mosaic)[0]
    stretch = levels(data if like is None else minifits.read(like)[0])
    draw(data, stretch, size).save(png, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="make a picture of a mosaic")
    parser.add_argument("mosaic", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("--size", type=int, default=900, help="width in pixels (default 900)")
    parser.add_argument("--like", type=Path, help="another mosaic, whose black and white to use")
    options = parser.parse_args()
    try:
        make_picture(options.mosaic, options.png, size=options.size, like=options.like)
    except (ValueError, OSError) as error:
        print(f"picture.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
