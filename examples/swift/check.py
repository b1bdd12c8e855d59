"""The examples in Swift: makes their input, runs them with amfs, checks their answers. check.py DIRECTORY [NAME …].

Exit status 1 if an answer is wrong.
"""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(name: str, work: Path, *arguments: str) -> str:
    """The output of the script."""
    shutil.copytree(HERE / "programs", work / "programs")
    words = ["amfs", "run", "-q", HERE / f"{name}.swift", "--", *arguments]
    return subprocess.run(words, cwd=work, stdout=subprocess.PIPE, text=True, check=True).stdout


def sweep(work: Path, name: str = "sweep") -> bool:
    angle, speed, distance = map(float, run(name, work, "-n=5").removeprefix("angle, speed, distance: ").split())
    cases = [(v**2 * math.sin(2 * math.radians(a)) / 9.81, a, v) for a in range(20, 71, 5) for v in range(60, 101, 10)]
    best = max(distance for distance, _, _ in cases if distance <= 900)
    return abs(distance - best) < 1e-3 and abs(speed**2 * math.sin(2 * math.radians(angle)) / 9.81 - best) < 1e-3


def landuse(work: Path) -> bool:
    chance = random.Random(1)
    tiles = {f"h{i}": ["".join(chance.choices("uwf", (i * i, 9, 9), k=12)) for _ in range(6)] for i in (3, 9, 1, 6)}
    (work / "tiles").mkdir()
    for name, lines in tiles.items():
        (work / "tiles" / f"{name}.tile").write_text("\n".join(lines) + "\n")
    printed = run("landuse", work)
    top = sorted(tiles, key=lambda name: -sum(line.count("u") for line in tiles[name]))[:2]
    picture = [f"{a}|{b}".replace("u", "#") for a, b in zip(*(tiles[name] for name in top), strict=True)]
    told = [f"{i}: {name}" for i, name in enumerate(top)]
    return sorted(printed.splitlines()) == told and (work / "picture.txt").read_text().splitlines() == picture


def pi(work: Path, name: str = "pi") -> bool:
    return abs(float(run(name, work).split()[2].rstrip(",")) - math.pi) < 0.02


def wordlengths(work: Path, name: str = "wordlengths") -> bool:
    chance = random.Random(2)
    lines = [" ".join("x" * chance.randint(1, 12) for _ in range(chance.randint(0, 9))) for _ in range(200)]
    (work / "text.txt").write_text("\n".join(lines) + "\n")
    run(name, work)
    counts = {int(a): int(b) for a, b in (line.split() for line in (work / "lengths.txt").read_text().splitlines())}
    return counts == Counter(len(word) for line in lines for word in line.split())


def mosaic(work: Path) -> bool:
    (work / "sky").mkdir()
    for i, background in enumerate((0, 7, -3, 11)):
        lines = (f"{x} {x * x % 101 + background}\n" for x in range(i * 20, i * 20 + 30))
        (work / "sky" / f"{i}.img").write_text("".join(lines))
    run("mosaic", work)
    return (work / "mosaic.txt").read_text().splitlines() == [f"{x} {x * x % 101}" for x in range(90)]


def blast(work: Path) -> bool:
    chance = random.Random(3)
    genome = "".join(chance.choices("ACGT", k=20000))
    (work / "genome.fa").write_text(f">genome\n{genome}\n")
    starts = [chance.randrange(19000) for _ in range(20)]
    (work / "queries.fa").write_text("".join(f">q{start}\n{genome[start : start + 200]}\n" for start in starts))
    run("blast", work)
    hits = {row[0]: int(row[8]) for row in (line.split("\t") for line in (work / "hits.txt").read_text().splitlines())}
    return hits == {f"q{start}": start + 1 for start in starts}


def hercules(work: Path) -> bool:
    lines = run("hercules", work).splitlines()
    return len(lines) == 8 and all((work / f"part-{i}.txt").read_text() == "data\n" for i in range(8))


EXAMPLES: dict[str, Callable[[Path], bool]] = {
    "sweep": sweep, "landuse": landuse, "pi": pi, "wordlengths": wordlengths, "mosaic": mosaic, "blast": blast, "hercules": hercules,
    "sweep-k": partial(sweep, name="sweep-k"), "pi-k": partial(pi, name="pi-k"),
    "wordlengths-k": partial(wordlengths, name="wordlengths-k"),
}  # fmt: skip


def main(directory: str, *names: str) -> int:
    wrong = []
    for name in names or EXAMPLES:
        if name == "blast" and not shutil.which("blastn"):
            print("blast: there is no blastn here")
            continue
        work = Path(directory).resolve() / name
        work.mkdir(parents=True)
        right = EXAMPLES[name](work)
        print(f"{name}: {'right' if right else 'WRONG'}")
        if not right:
            wrong.append(name)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
