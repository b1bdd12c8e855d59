"""Workflows as loads of a chaos run: the tasks, and their proper results. The outputs are compared with those of a run left alone.

Must not know disturbances. The load of the file system is in ``fsload.py``.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MONTAGE = ROOT / "examples" / "montage"
TRACE = "trace.json"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Load:
    """A run: ``prepare`` makes a directory of inputs, ``arguments`` are those of ``amfs run`` in it."""

    name = ""
    resumable = True

    def prepare(self, place: Path, rng: random.Random) -> None:
        raise NotImplementedError

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def fetch(self, place: Path, amfs: Callable[..., bool]) -> bool:
        """Bring the outputs there, if they are elsewhere: ``amfs`` runs a command of the session. Whether all went well."""
        return True

    def results(self, place: Path) -> dict[str, str]:
        """Each output and its digest."""
        raise NotImplementedError


class Montage(Load):
    """A sky of 16 images, to a mosaic with its backgrounds corrected. Headers of FITS files have dates, so pixels are compared."""

    name = "montage"

    def prepare(self, place: Path, rng: random.Random) -> None:
        sys.path.insert(0, str(MONTAGE))
        import make_sky

        place.rmdir()
        make_sky.make_sky(place, grid=4, size=120, seed=7)
        written = subprocess.run(
            [sys.executable, str(MONTAGE / "write_workflow.py"), str(place), "--arity", "3"], capture_output=True, text=True, check=True
        )
        (place / "montage.tasks").write_text(written.stdout)

    def arguments(self) -> list[str]:
        return ["montage.tasks"]

    def results(self, place: Path) -> dict[str, str]:
        import minifits

        names = ("mosaic.fits", "mosaic_area.fits")
        return {name: hashlib.sha256(minifits.read(place / name)[0].tobytes()).hexdigest() for name in names if (place / name).exists()}


class Layers(Load):
    """Six layers of tasks; each output depends on all bytes of its inputs. No output has a fixed part, so that one of another task, an
    empty or a torn one changes everything after it."""

    name = "layers"
    width, depth = 10, 6

    def prepare(self, place: Path, rng: random.Random) -> None:
        lines, before = [], [f"in{n}" for n in range(4)]
        for name in before:
            (place / name).write_bytes(rng.randbytes(20_000))
        for layer in range(self.depth):
            made = []
            for n in range(self.width):
                name = f"t{layer}-{n}"
                inputs = sorted(rng.sample(before, min(len(before), rng.randint(1, 4))))
                size = rng.choice((100, 5_000, 70_000, 400_000))
                rest = f"sleep {rng.uniform(0.05, 0.5):.2f}; yes $d {name} | head -c {size} > {name}"
                script = f"d=$(cat {' '.join(inputs)} | sha256sum); {rest}"
                lines.append(f"{name} -b sh -i {' '.join(inputs)} -o {name} -label layer{layer} -a -c '{script}'")
                made.append(name)
            before = made
        script = f"cat {' '.join(before)} > all"
        lines.append(f"all -b sh -i {' '.join(before)} -o all -a -c '{script}'")
        (place / "layers.tasks").write_text("\n".join(lines) + "\n")

    def arguments(self) -> list[str]:
        return ["--keep-all", "layers.tasks"]

    def results(self, place: Path) -> dict[str, str]:
        return {path.name: digest(path) for path in place.glob("[at]*") if path.name != TRACE}


class Session(Layers):
    """The same, with all files between the tasks, and the results, in the session's file system: lost ones are made again."""

    name = "session"

    def prepare(self, place: Path, rng: random.Random) -> None:
        super().prepare(place, rng)
        text = (place / "layers.tasks").read_text()
        text = re.sub(r"\b(t\d+-\d+|all)(?=[ ;']|$)", r"amfs:/w/\1", text, flags=re.MULTILINE)
        text = re.sub(r"^amfs:/w/", "", text, flags=re.MULTILINE)  # the ids
        (place / "layers.tasks").write_text(text)

    def arguments(self) -> list[str]:
        return ["layers.tasks"]

    def fetch(self, place: Path, amfs: Callable[..., bool]) -> bool:
        shutil.rmtree(place / "got", ignore_errors=True)
        return amfs("get", "-r", "amfs:/w", str(place / "got"))

    def results(self, place: Path) -> dict[str, str]:
        return {path.name: digest(path) for path in (place / "got").glob("*")}


class Dax(Load):
    """A replay of a DAX with files of recorded sizes, scaled; ``amfs-synthetic`` checks each byte of its inputs."""

    resumable = False  # a replay begins from the beginning
    choices = (("CyberShake_30.xml", "0.03", "0.0003"), ("Montage_25.xml", "0.09", "0.1"), ("Inspiral_30.xml", "0.0035", "0.1"))

    def __init__(self, which: int) -> None:
        self.file, self.times, self.sizes = self.choices[which]
        self.name = f"dax-{self.file.partition('_')[0]}"

    def prepare(self, place: Path, rng: random.Random) -> None:
        pass

    def arguments(self) -> list[str]:
        file = str(ROOT / "tests" / "data" / "corpus" / "dax" / self.file)
        return ["--synthetic", "--time-scale", self.times, "--size-scale", self.sizes, "--keep-all", "-C", ".", file]

    def results(self, place: Path) -> dict[str, str]:
        return {str(path.relative_to(place)): digest(path) for path in place.rglob("*") if path.is_file() and path.name != TRACE}


WORKFLOWS = ("montage", "layers", "session", "dax")


def workflow(kind: str, rng: random.Random) -> Load:
    if kind == "montage":
        return Montage()
    if kind in ("layers", "session"):
        return Layers() if kind == "layers" else Session()
    return Dax(rng.randrange(len(Dax.choices)))
