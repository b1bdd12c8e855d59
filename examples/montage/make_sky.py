"""Make a piece of sky that nobody has photographed: overlapping images of it, each with a background of its own.

    python make_sky.py DIR [--grid 5] [--size 300] [--seed 1]

writes DIR/raw/NNN.fits (grid x grid images in the tangent-plane projection, slightly shifted and turned, each with its own background
offset and gradient and with noise), DIR/region.hdr (where the mosaic is to lie) and DIR/truth.fits (the sky without noise and backgrounds
on the pixels of the mosaic, to judge the result by). The same seed gives the same bytes. Needs numpy and no network.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import minifits
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CENTRE = (210.80, 54.35)  # right ascension and declination of the middle, degrees: M101, as in the AME paper
PIXEL = 1.0 / 1200.0  # degrees per pixel: 3 arc seconds
OVERLAP = 0.22  # of an image's side, shared with its neighbour


class Frame(NamedTuple):
    """Where an image lies: a tangent-plane projection with a turn."""

    ra: float  # of the reference pixel, degrees
    dec: float
    columns: int
    rows: int
    turn: float  # CROTA2, degrees

    def header(self) -> minifits.Header:
        return {
            "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "EQUINOX": 2000.0,
            "CRVAL1": self.ra, "CRVAL2": self.dec,
            "CRPIX1": (self.columns + 1) / 2, "CRPIX2": (self.rows + 1) / 2,
            "CDELT1": -PIXEL, "CDELT2": PIXEL, "CROTA2": self.turn,
        }  # fmt: skip

    def pixels_to_plane(self) -> tuple[Array, Array]:
        """Position of every pixel on the tangent plane at CENTRE, degrees."""
        x, y = np.meshgrid(np.arange(self.columns) - (self.columns - 1) / 2, np.arange(self.rows) - (self.rows - 1) / 2)
        u, v = np.radians(-PIXEL * x), np.radians(PIXEL * y)
        c, s = math.cos(math.radians(self.turn)), math.sin(math.radians(self.turn))
        return _sky_to_plane(*_plane_to_sky(u * c - v * s, u * s + v * c, self.ra, self.dec), *CENTRE)

    def plane_to_pixels(self, xi: Array, eta: Array) -> tuple[Array, Array]:
        """The other way: column and row (from 0) of positions on the tangent plane at CENTRE."""
        a, b = _sky_to_plane(*_plane_to_sky(np.radians(xi), np.radians(eta), *CENTRE), self.ra, self.dec)
        c, s = math.cos(math.radians(self.turn)), math.sin(math.radians(self.turn))
        return (a * c + b * s) / -PIXEL + (self.columns - 1) / 2, (b * c - a * s) / PIXEL + (self.rows - 1) / 2


def _plane_to_sky(u: Array, v: Array, ra: float, dec: float) -> tuple[Array, Array]:
    """Inverse gnomonic projection; radians in, radians out, the tangent point in degrees."""
    d0 = math.radians(dec)
    d = math.cos(d0) - v * math.sin(d0)
    return math.radians(ra) + np.arctan2(u, d), np.arctan2(math.sin(d0) + v * math.cos(d0), np.hypot(u, d))


def _sky_to_plane(a: Array, d: Array, ra: float, dec: float) -> tuple[Array, Array]:
    """Gnomonic projection; radians in, degrees out."""
    a0, d0 = math.radians(ra), math.radians(dec)
    w = np.sin(d) * math.sin(d0) + np.cos(d) * math.cos(d0) * np.cos(a - a0)
    u = np.cos(d) * np.sin(a - a0) / w
    v = (np.sin(d) * math.cos(d0) - np.cos(d) * math.sin(d0) * np.cos(a - a0)) / w
    return np.degrees(u), np.degrees(v)


class Sky:
    """The truth: a nebula and a star catalogue over ``width`` degrees around CENTRE."""

    def __init__(self, rng: np.random.Generator, width: float) -> None:
        self.width = width * 1.3
        self.nebula = self._make_nebula(rng, self.width)
        count = int(1500 * (self.width / 1.05) ** 2)
        self.xi, self.eta = rng.uniform(-self.width / 2, self.width / 2, (2, count))
        # Few bright stars, many faint ones: counts in the middle of the star, a power law with the slope of a real field.
        self.peak = np.minimum(12.0 * rng.pareto(1.05, count) + 6.0, 9000.0)

    @staticmethod
    def _make_nebula(rng: np.random.Generator, width: float) -> Array:
        """Clouds (noise with the spectrum of turbulence) lit around two places, on a 768 x 768 grid."""
        n = 768
        k = np.hypot(np.fft.fftfreq(n)[:, None], np.fft.rfftfreq(n)[None, :]) * n

        def clouds(slope: float, smallest: float) -> Array:
            noise = np.fft.rfft2(rng.standard_normal((n, n)))
            field = np.fft.irfft2(noise / np.maximum(k, 1.0) ** slope * np.exp(-((k / smallest) ** 2)) * (k > 0), (n, n))
            return np.asarray(field / field.std(), dtype=np.float64)

        axis = np.linspace(-0.5, 0.5, n)
        x, y = np.meshgrid(axis, axis)
        x, y = x + 0.035 * clouds(2.2, 30.0), y + 0.035 * clouds(2.2, 30.0)
        light = np.exp(-((x + 0.10) ** 2 + (y - 0.04) ** 2) / 0.045) + 0.7 * np.exp(-((x - 0.21) ** 2 + (y + 0.17) ** 2) / 0.022)
        ridges = np.exp(-1.6 * np.abs(clouds(1.75, 110.0)))
        gas = np.exp(0.55 * clouds(1.85, 120.0))
        dust = 1.0 / (1.0 + np.exp(3.0 * (clouds(1.9, 100.0) - 1.1)))
        return np.asarray(95.0 * light * (0.45 * gas + 0.9 * ridges) * dust + 5.0 * gas, dtype=np.float64)

    def image(self, frame: Frame) -> Array:
        """Counts in every pixel of ``frame``."""
        xi, eta = frame.pixels_to_plane()
        n = self.nebula.shape[0]
        gx, gy = ((p / self.width + 0.5) * (n - 1) for p in (xi, eta))
        ix, iy = np.clip(gx.astype(int), 0, n - 2), np.clip(gy.astype(int), 0, n - 2)
        fx, fy = gx - ix, gy - iy
        z = self.nebula
        data = (z[iy, ix] * (1 - fx) + z[iy, ix + 1] * fx) * (1 - fy) + (z[iy + 1, ix] * (1 - fx) + z[iy + 1, ix + 1] * fx) * fy
        columns, rows = frame.plane_to_pixels(self.xi, self.eta)
        for column, row, peak in zip(columns, rows, self.peak, strict=True):
            # A Moffat profile, cut where it has sunk to a tenth of a count.
            core, beta = 1.7, 2.6
            radius = math.ceil(core * math.sqrt((10.0 * peak) ** (1 / beta) - 1.0))
            left, right = max(0, round(column) - radius), min(frame.columns, round(column) + radius + 1)
            low, high = max(0, round(row) - radius), min(frame.rows, round(row) + radius + 1)
            if left < right and low < high:
                r2 = (np.arange(left, right)[None, :] - column) ** 2 + (np.arange(low, high)[:, None] - row) ** 2
                data[low:high, left:right] += np.maximum(peak * (1.0 + r2 / core**2) ** -beta - 0.1, 0.0)
        return np.asarray(data, dtype=np.float64)


def make_sky(
    where: str | Path,
    *,
    grid: int = 5,
    size: int = 300,
    seed: int = 1,
    background: float = 40.0,
    gradient: float = 25.0,
    noise: float = 2.0,
) -> list[str]:
    """Write the sky into the directory ``where`` and return the names of the raw images relative to it.

    ``background`` and ``gradient`` are the standard deviations of an image's offset and of its change from edge to edge, ``noise`` that
    of a pixel, all in counts.
    """
    base = Path(where)
    (base / "raw").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    pitch = round(size * (1.0 - OVERLAP))
    side = (grid - 1) * pitch + size
    sky = Sky(rng, side * PIXEL)
    names = []
    for number in range(grid * grid):
        row, column = divmod(number, grid)
        x, y = ((i - (grid - 1) / 2) * pitch + rng.uniform(-0.03, 0.03) * size for i in (column, row))
        a, d = _plane_to_sky(np.radians(-PIXEL * np.array(x)), np.radians(PIXEL * np.array(y)), *CENTRE)
        frame = Frame(math.degrees(float(a)), math.degrees(float(d)), size, size, rng.uniform(-2.5, 2.5))
        u, v = np.meshgrid(np.linspace(-0.5, 0.5, size), np.linspace(-0.5, 0.5, size))
        level, slope_x, slope_y = background * rng.standard_normal(), *(gradient * rng.standard_normal(2))
        data = sky.image(frame) + 1000.0 + level + slope_x * u + slope_y * v + noise * rng.standard_normal((size, size))
        names.append(f"raw/{number:03d}.fits")
        minifits.write(base / names[-1], data.astype(np.float32), frame.header())
    mosaic = Frame(*CENTRE, side + 2 * (size // 12), side + 2 * (size // 12), 0.0)
    template: minifits.Header = {"SIMPLE": True, "BITPIX": -64, "NAXIS": 2, "NAXIS1": mosaic.columns, "NAXIS2": mosaic.rows}
    minifits.write_template(base / "region.hdr", template | mosaic.header())
    minifits.write(base / "truth.fits", sky.image(mosaic).astype(np.float32), mosaic.header())
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description="make overlapping synthetic sky images")
    parser.add_argument("where", metavar="DIR")
    parser.add_argument("--grid", type=int, default=5, help="images per side (default 5)")
    parser.add_argument("--size", type=int, default=300, help="pixels per side of an image (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-background", action="store_true", help="give the images no backgrounds of their own")
    options = parser.parse_args()
    extra = {"background": 0.0, "gradient": 0.0} if options.no_background else {}
    names = make_sky(options.where, grid=options.grid, size=options.size, seed=options.seed, **extra)
    print(f"{len(names)} images of {options.size} x {options.size} pixels in {options.where}/raw")


if __name__ == "__main__":
    main()
