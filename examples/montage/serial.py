"""The same mosaic by hand: Montage's programs one after the other in a plain directory, as its tutorial does it. No amfs in here.

    python serial.py SKY WORK [--tools auto|montagepy|debian] [--uncorrected]

This is what the run through amfs is compared with, pixel by pixel, so it shares as little with it as possible: mImgtbl looks at whole
directories, and mConcatFit is Montage's own where there is one (MontagePy has none).
"""

from __future__ import annotations

import argparse
import collections
import shutil
import subprocess
import sys
import time
from pathlib import Path

import ipac
import toolkit


class Serial:
    """Runs programs and remembers how long they took and how many bytes of files they read and wrote."""

    def __init__(self, tools: toolkit.Tools, where: Path) -> None:
        self.tools = tools
        self.where = where
        self.seconds: collections.Counter[str] = collections.Counter()
        self.count: collections.Counter[str] = collections.Counter()

    def run(self, program: str, *arguments: str, directory: str = ".") -> None:
        """Raises CalledProcessError, after showing what the program said, when it fails."""
        self._call(program, self.tools.command(program, *arguments), directory)

    def _call(self, stage: str, command: list[str], directory: str = ".") -> None:
        start = time.perf_counter()
        done = subprocess.run(command, cwd=self.where / directory, capture_output=True, text=True, check=False)
        self.seconds[stage] += time.perf_counter() - start
        self.count[stage] += 1
        if done.returncode:
            print(done.stdout + done.stderr, file=sys.stderr)
            done.check_returncode()

    def image_table(self, directory: str, name: str) -> None:
        """mImgtbl over a directory, and the table sorted: mImgtbl takes the files as the directory happens to list them."""
        self.run("mImgtbl", directory, name)
        path = self.where / name
        path.write_text(ipac.render(ipac.merge_images([ipac.parse(path.read_text())])))

    def concat_fit(self, pairs: list[tuple[int, int]]) -> None:
        if self.tools.kind == "debian":
            listed = ipac.Table(["cntr1", "cntr2", "stat"], ["int", "int", "char"], [[str(a), str(b), _status(a, b)] for a, b in pairs])
            (self.where / "statfiles.tbl").write_text(ipac.render(listed))
            self.run("mConcatFit", "statfiles.tbl", "fits.tbl", "fit")
        else:
            command = self.tools.concat_fit("fits.tbl", *(f"fit/{_status(a, b)}" for a, b in pairs))
            self._call("mConcatFit", command)

    def mosaic(self, *, uncorrected: bool = False) -> None:
        """Raw images in raw/ and region.hdr to mosaic.fits."""
        raw = sorted(path.name for path in (self.where / "raw").glob("*.fits"))
        for directory in ("proj", "fit", "corr"):
            (self.where / directory).mkdir()
        for image in raw:
            self.run("mProjectPP", f"raw/{image}", f"proj/{image}", "region.hdr")
        self.image_table("proj", "images.tbl")
        self.run("mOverlaps", "images.tbl", "overlaps.tbl")
        table = ipac.parse((self.where / "overlaps.tbl").read_text())
        pairs = [(int(a), int(b)) for a, b in zip(table.column("cntr1"), table.column("cntr2"), strict=True)]
        for a, b in pairs:
            self.run("mDiffFit", "-s", f"fit/{_status(a, b)}", f"proj/{raw[a]}", f"proj/{raw[b]}", "difference.fits", "region.hdr")
        self.concat_fit(pairs)
        self.run("mBgModel", "-i", "10000", "images.tbl", "fits.tbl", "corrections.tbl")
        for image in raw:
            # From inside proj/, as mBackground looks the image up in the table by the very name that was typed.
            self.run("mBackground", "-t", image, f"../corr/{image}", "../images.tbl", "../corrections.tbl", directory="proj")
        self.image_table("corr", "corrected.tbl")
        self.run("mAdd", "-e", "-p", "corr", "corrected.tbl", "region.hdr", "mosaic.fits")
        if uncorrected:
            self.run("mAdd", "-e", "-p", "proj", "images.tbl", "region.hdr", "uncorrected.fits")

    def report(self) -> str:
        lines = [f"{stage:<12} {count:>5} runs {self.seconds[stage]:8.2f} s" for stage, count in self.count.items()]
        return "\n".join([*lines, f"{'all':<12} {sum(self.count.values()):>5} runs {sum(self.seconds.values()):8.2f} s"])


def _status(a: int, b: int) -> str:
    return f"fit.{a:06d}.{b:06d}.txt"


def make_mosaic(sky: Path, work: Path, kind: str = "auto", *, uncorrected: bool = False) -> Serial:
    """The mosaic of the sky in ``sky`` in the new directory ``work``. Raises NoMontage, FileExistsError and CalledProcessError."""
    tools = toolkit.find(kind)
    (work / "raw").mkdir(parents=True)
    for path in (sky / "raw").glob("*.fits"):
        shutil.copyfile(path, work / "raw" / path.name)
    shutil.copyfile(sky / "region.hdr", work / "region.hdr")
    serial = Serial(tools, work)
    serial.mosaic(uncorrected=uncorrected)
    return serial


def main() -> int:
    parser = argparse.ArgumentParser(description="make the mosaic serially, without amfs")
    parser.add_argument("sky", metavar="SKY", type=Path, help="directory that make_sky.py wrote")
    parser.add_argument("work", metavar="WORK", type=Path, help="new directory to work in")
    parser.add_argument("--tools", choices=toolkit.CHOICES, default="auto")
    parser.add_argument("--uncorrected", action="store_true", help="also the mosaic without background correction")
    options = parser.parse_args()
    try:
        serial = make_mosaic(options.sky, options.work, options.tools, uncorrected=options.uncorrected)
    except (toolkit.NoMontage, OSError, subprocess.CalledProcessError) as error:
        print(f"serial.py: {error}", file=sys.stderr)
        return 1
    print(serial.report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
