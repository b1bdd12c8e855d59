#!/usr/bin/env python3
"""Montage's programs out of the MontagePy package: one call, one stage, one process, with the arguments of the programs of that name.

    python m.py mProjectPP in.fits out.fits region.hdr
    python m.py mImgtbl [-t list.tbl] DIR images.tbl
    python m.py mOverlaps images.tbl overlaps.tbl
    python m.py mDiffFit [-s status.txt] one.fits other.fits diff.fits region.hdr
    python m.py mBgModel [-i N] images.tbl fits.tbl corrections.tbl
    python m.py mBackground -t in.fits out.fits images.tbl corrections.tbl
    python m.py mAdd [-e] [-p DIR] images.tbl region.hdr mosaic.fits

So tasks stay ordinary programs that read files and write files. Each start costs the start of Python (some 15 ms, more than most of these
stages compute): `toolkit.py` takes the programs written in C where they are installed. Everything imported here is paid in every task.
"""

from __future__ import annotations

import getopt
import os
import sys

import ipac

_OPTIONS = {"mImgtbl": "t:", "mDiffFit": "s:", "mBgModel": "i:", "mBackground": "t", "mAdd": "ep:"}


def _correction(image: str, images_path: str, corrections_path: str) -> tuple[float, float, float]:
    """The result of mBgModel for this image: looked up in the tables by the name as typed, as mBackground -t does."""
    with open(images_path, encoding="utf-8") as file:
        images = ipac.parse(file.read())
    with open(corrections_path, encoding="utf-8") as file:
        corrections = ipac.parse(file.read())
    numbers = dict(zip(images.column("fname"), images.column("cntr"), strict=True))
    if image not in numbers:
        raise ValueError(f"{image} is not in {images_path}")
    rows = {row[0]: row for row in zip(*(corrections.column(name) for name in ("id", "a", "b", "c")), strict=True)}
    row = rows.get(numbers[image])
    if row is None:
        print(f"mBackground: {image}: no overlap gave a correction for it; copied as it is", file=sys.stderr)
        return 0.0, 0.0, 0.0
    return float(row[1]), float(row[2]), float(row[3])


def _status(answer: dict[str, object]) -> str:
    """A MontagePy answer in the form in which the programs written in C print it."""
    if answer["status"] != "0":
        return f'[struct stat="ERROR", msg="{_message(answer)}"]'
    return '[struct stat="OK", ' + ", ".join(f"{k}={v!r}" for k, v in answer.items() if k not in ("status", "msg")) + "]"


def _message(answer: dict[str, object]) -> str:
    message = answer.get("msg", b"failed without a message")
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)


def run(name: str, arguments: list[str]) -> dict[str, object]:
    """Run one stage. Raises ValueError or getopt.GetoptError when the arguments are wrong."""
    import MontagePy.main as montage

    options, rest = getopt.getopt(arguments, _OPTIONS.get(name, ""))
    option = dict(options)
    if name == "mProjectPP" and len(rest) == 3:
        return montage.mProjectPP(*rest)
    if name == "mImgtbl" and len(rest) == 2:
        return montage.mImgtbl(rest[0], rest[1], imgListFile=option.get("-t", ""), showCorners=False)
    if name == "mOverlaps" and len(rest) == 2:
        return montage.mOverlaps(*rest)
    if name == "mDiffFit" and len(rest) == 4:
        for path in (rest[0], rest[1], rest[3]):
            if not os.path.exists(path):
                raise ValueError(f"{path}: no such file")
        answer = montage.mDiffFit(*rest)
        if "-s" in option:
            # An overlap without a common pixel is a finding, not a failure: it is in the status file and the program ends well.
            with open(option["-s"], "w", encoding="utf-8") as file:
                file.write(_status(answer) + "\n")
            return {"status": "0"}
        return answer
    if name == "mBgModel" and len(rest) == 3:
        return montage.mBgModel(*rest, niteration=int(option.get("-i", "10000")))
    if name == "mBackground" and len(rest) == 4 and "-t" in option:
        return montage.mBackground(rest[0], rest[1], *_correction(rest[0], rest[2], rest[3]))
    if name == "mAdd" and len(rest) == 3:
        return montage.mAdd(option.get("-p", "."), *rest, shrink=False, haveAreas=True)
    raise ValueError(f"{name}: not a program of this example, or the wrong number of arguments")


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    name = sys.argv[1]
    try:
        answer = run(name, sys.argv[2:])
    except (ValueError, OSError, getopt.GetoptError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"{name}: {error} (pip install MontagePy)", file=sys.stderr)
        return 2
    if answer["status"] != "0":
        print(f"{name}: {_message(answer)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
