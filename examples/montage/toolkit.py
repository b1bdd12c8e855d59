"""Which Montage this machine has: the MontagePy package or the programs of the Debian packages, and how to call either.

Both are the same C code of different ages and give the same pictures to within rounding; one workflow uses one of them throughout.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("mProjectPP", "mImgtbl", "mOverlaps", "mDiffFit", "mBgModel", "mBackground", "mAdd")
CHOICES = ("auto", "montagepy", "debian")


class NoMontage(Exception):
    """Neither Montage can be used; the message says what to install."""


class Tools:
    """Command lines for Montage's programs and for the two of this example."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def command(self, program: str, *arguments: str) -> list[str]:
        """One of Montage's own programs."""
        prefix = [program] if self.kind == "debian" else [sys.executable, str(HERE / "m.py"), program]
        return [*prefix, *arguments]

    def imgtbl(self, *arguments: str) -> list[str]:
        """``OUT IN…``: the image table of FITS files and of image tables, associatively."""
        return [sys.executable, str(HERE / "imgtbl_reduce.py"), self.kind, *arguments]

    def concat_fit(self, *arguments: str) -> list[str]:
        """``OUT IN…``: the table of fits of mDiffFit's status files and of such tables, associatively."""
        return [sys.executable, str(HERE / "concat_fit.py"), *arguments]


def find(kind: str = "auto") -> Tools:
    """The Montage asked for; ``auto`` takes the programs written in C where they are, as they start faster. Raises NoMontage."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    package = importlib.util.find_spec("MontagePy") is not None
    if kind == "debian" and missing:
        raise NoMontage(f"not on PATH: {', '.join(missing)} (apt-get install --no-install-recommends montage montage-gridtools)")
    if kind == "montagepy" and not package:
        raise NoMontage(f"{sys.executable} has no MontagePy (pip install MontagePy)")
    if kind == "auto":
        if not missing:
            kind = "debian"
        elif package:
            kind = "montagepy"
        else:
            raise NoMontage(
                "no Montage here: either pip install MontagePy, or apt-get install --no-install-recommends montage montage-gridtools"
            )
    return Tools(kind)
