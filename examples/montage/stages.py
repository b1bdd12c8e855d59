"""The eight stages of Montage as tasks: the program, inputs and outputs of each. One description for the driver and for the task list.

    mProject (mProjectPP)  one a raw image      raw/N.fits -> proj/N.fits
    mImgtbl                a reduction          proj/*.fits -> images.tbl
    mOverlaps              one                  images.tbl -> overlaps.tbl, from which the next stage is known
    mDiffFit               one an overlap       two of proj/ -> fit/fit.A.B.txt
    mConcatFit             a reduction          fit/* -> fits.tbl
    mBgModel               one                  images.tbl, fits.tbl -> corrections.tbl
    mBackground            one an image         proj/N.fits, corrections.tbl -> corr/N.fits
    mAdd                   one                  corr/*.fits -> mosaic.fits

Every image has its area image (the weight of every pixel) beside it. Names are relative to the directory of the sky.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import ipac
from toolkit import Tools

REGION = "region.hdr"
ARITY = 16  # inputs of one node of a reduction tree


class Step(NamedTuple):
    """One task. With ``arity`` it is a reduction: its argv has ``{in}`` and ``{out}`` and may run as a tree."""

    id: str
    label: str
    argv: list[str]
    inputs: list[str]
    outputs: list[str]
    arity: int = 0


def area(image: str) -> str:
    """The name of the area image that belongs to an image."""
    return image.removesuffix(".fits") + "_area.fits"


def with_areas(images: Iterable[str]) -> list[str]:
    return [name for image in images for name in (image, area(image))]


def moved(raw: str, directory: str) -> str:
    """The name of an image in the directory of a later stage."""
    return f"{directory}/{PurePosixPath(raw).name}"


def project(tools: Tools, raw: Sequence[str]) -> list[Step]:
    return [
        Step(
            f"project-{PurePosixPath(image).stem}", "mProject", tools.command("mProjectPP", image, moved(image, "proj"), REGION),
            [image, REGION], with_areas([moved(image, "proj")]),
        )
        for image in raw
    ]  # fmt: skip


def images_table(tools: Tools, images: Sequence[str], table: str, arity: int = ARITY) -> Step:
    # The areas are no inputs here: an image's header says all.
    return Step(f"imgtbl-{table}", "mImgtbl", tools.imgtbl("{out}", "{in}"), list(images), [table], arity)


def overlaps(tools: Tools) -> Step:
    return Step("overlaps", "mOverlaps", tools.command("mOverlaps", "images.tbl", "overlaps.tbl"), ["images.tbl"], ["overlaps.tbl"])


def pairs(overlaps_text: str) -> list[tuple[int, int]]:
    """The pairs of overlapping images, as numbers in the image table, from the text of mOverlaps's table."""
    table = ipac.parse(overlaps_text)
    return [(int(a), int(b)) for a, b in zip(table.column("cntr1"), table.column("cntr2"), strict=True)]


def fits(tools: Tools, projected: Sequence[str], overlapping: Iterable[tuple[int, int]]) -> list[Step]:
    """One mDiffFit per overlap. The numbers of the pairs count the image table, which is sorted by name."""
    numbered = sorted(projected)
    steps = []
    for a, b in overlapping:
        name = f"{a:06d}.{b:06d}"
        status, one, other = f"fit/fit.{name}.txt", numbered[a], numbered[b]
        command = tools.command("mDiffFit", "-s", status, one, other, f"diff.{name}.fits", REGION)
        steps.append(Step(f"fit-{name}", "mDiffFit", command, [*with_areas([one, other]), REGION], [status]))
    return steps


def model(tools: Tools, statuses: Sequence[str], arity: int = ARITY) -> list[Step]:
    """mConcatFit and mBgModel."""
    return [
        Step("concatfit", "mConcatFit", tools.concat_fit("{out}", "{in}"), list(statuses), ["fits.tbl"], arity),
        Step(
            "bgmodel", "mBgModel", tools.command("mBgModel", "-i", "10000", "images.tbl", "fits.tbl", "corrections.tbl"),
            ["images.tbl", "fits.tbl"], ["corrections.tbl"],
        ),
    ]  # fmt: skip


def background(tools: Tools, raw: Sequence[str]) -> list[Step]:
    steps = []
    for image in raw:
        one, other = moved(image, "proj"), moved(image, "corr")
        command = tools.command("mBackground", "-t", one, other, "images.tbl", "corrections.tbl")
        inputs = [*with_areas([one]), "images.tbl", "corrections.tbl"]
        steps.append(Step(f"background-{PurePosixPath(image).stem}", "mBackground", command, inputs, with_areas([other])))
    return steps


def add(tools: Tools, images: Sequence[str], table: str, mosaic: str) -> Step:
    command = tools.command("mAdd", "-e", table, REGION, mosaic)
    return Step(f"add-{mosaic}", "mAdd", command, [*with_areas(images), table, REGION], with_areas([mosaic]))


def first_half(tools: Tools, raw: Sequence[str], *, arity: int = ARITY) -> list[Step]:
    """Everything up to the list of overlaps."""
    return [*project(tools, raw), images_table(tools, [moved(image, "proj") for image in raw], "images.tbl", arity), overlaps(tools)]


def second_half(tools: Tools, raw: Sequence[str], overlaps_text: str, *, uncorrected: bool = False, arity: int = ARITY) -> list[Step]:
    """Everything that is known once mOverlaps has run. ``uncorrected`` adds the mosaic without background correction."""
    projected, corrected = ([moved(image, directory) for image in raw] for directory in ("proj", "corr"))
    compare = fits(tools, projected, pairs(overlaps_text))
    steps = [*compare, *model(tools, [step.outputs[0] for step in compare], arity), *background(tools, raw)]
    steps += [images_table(tools, corrected, "corrected.tbl", arity), add(tools, corrected, "corrected.tbl", "mosaic.fits")]
    if uncorrected:
        steps.append(add(tools, projected, "images.tbl", "uncorrected.fits"))
    return steps
