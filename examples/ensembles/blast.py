"""BLAST in the shape of the cloud storage paper: a protein database is split, each fragment formatted and searched, all hits merged.

1 + N + N + 1 tasks. The proteins are generated, always the same, with the usual frequencies of amino acids. The queries are some of them
with every tenth letter changed. The programs are those of NCBI BLAST+.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

from steps import PYTHON, Step, program

QUICK, FULL, UNIT = 12, 300, "fragments"
PROTEINS = 100  # in each fragment
QUERIES = 20
_LETTERS = "ARNDCQEGHILKMFPSTWYV"
_PER_CENT = (8.3, 5.5, 4.1, 5.5, 1.4, 3.9, 6.8, 7.1, 2.3, 6.0, 9.7, 5.8, 2.4, 3.9, 4.7, 6.6, 5.4, 1.1, 2.9, 6.9)  # of Swiss-Prot, rounded
_FORMATTED = (".phr", ".pin", ".psq")


def prepare(work: Path, fragments: int, proteins: int = PROTEINS) -> list[Step]:
    """The database, the queries, and the steps."""
    format_, search = program("makeblastdb", "ncbi-blast+"), program("blastp", "ncbi-blast+")
    (work / "fasta.py").write_bytes(Path(__file__).with_name("fasta.py").read_bytes())
    letters = generate(work, fragments * proteins)
    parts = [f"part{number:03d}" for number in range(fragments)]
    steps = [Step("split", "split", PYTHON, ["fasta.py", "split", "proteins.fa", *(f"{part}.fa" for part in parts)],
                  ["fasta.py", "proteins.fa"], [f"{part}.fa" for part in parts])]  # fmt: skip
    for part in parts:
        made = [part + suffix for suffix in _FORMATTED]
        words = ["-in", f"{part}.fa", "-dbtype", "prot", "-blastdb_version", "4", "-out", part]
        steps.append(Step(f"format-{part}", "makeblastdb", format_, words, [f"{part}.fa"], made))
    for part in parts:
        words = [*searching(part, letters), "-out", f"{part}.hits"]
        steps.append(Step(f"search-{part}", "blastp", search, words, ["queries.fa", *(part + end for end in _FORMATTED)], [f"{part}.hits"]))
    hits = [f"{part}.hits" for part in parts]
    steps.append(Step("merge", "merge", PYTHON, ["fasta.py", "merge", "hits.tsv", *hits], ["fasta.py", *hits], ["hits.tsv"]))
    return steps


def searching(database: str, letters: int) -> list[str]:
    """The arguments of blastp. E-values are those of the whole database, in whichever part a hit is."""
    return ["-query", "queries.fa", "-db", database, "-dbsize", str(letters), "-evalue", "1e-3", "-outfmt", "6", "-seg", "no"]


def generate(work: Path, count: int) -> int:
    """Writes proteins and queries; the letters of all proteins."""
    chance = random.Random(602)
    total = 0
    queried = set(range(0, count, max(1, count // QUERIES)))
    with (work / "proteins.fa").open("w") as proteins, (work / "queries.fa").open("w") as queries:
        for number in range(count):
            protein = "".join(chance.choices(_LETTERS, _PER_CENT, k=chance.randint(80, 500)))
            total += len(protein)
            proteins.write(f">p{number}\n{protein}\n")
            if number in queried:
                changed = "".join(chance.choice(_LETTERS) if at % 10 == 9 else letter for at, letter in enumerate(protein))
                queries.write(f">q_of_p{number}\n{changed}\n")
    return total


def check(work: Path, steps: list[Step]) -> str:
    """Raises ValueError if the merged hits are not those of one search in the whole database, or a query has not found its protein."""
    letters = sum(len(line) for line in (work / "proteins.fa").read_text().splitlines() if not line.startswith(">"))
    making = ["-in", "proteins.fa", "-dbtype", "prot", "-blastdb_version", "4", "-out", "whole"]
    subprocess.run([program("makeblastdb", "ncbi-blast+"), *making], cwd=work, check=True, stdout=subprocess.DEVNULL)
    search = [program("blastp", "ncbi-blast+"), *searching("whole", letters)]
    whole = subprocess.run(search, cwd=work, check=True, capture_output=True, text=True).stdout.splitlines()
    merged = (work / "hits.tsv").read_text().splitlines()
    if sorted(whole) != sorted(merged):
        raise ValueError(f"one search in the whole database has {len(whole)} hits, of the parts are {len(merged)}, or others")
    best: dict[str, str] = {}
    for line in merged:
        best.setdefault(line.split("\t")[0], line.split("\t")[1])  # merge has sorted them by their scores
    queries = [line[1:] for line in (work / "queries.fa").read_text().splitlines() if line.startswith(">")]
    wrong = [query for query in queries if best.get(query) != query.removeprefix("q_of_")]
    if wrong:
        raise ValueError(f"{len(wrong)} of {len(queries)} queries have not found their protein: {', '.join(wrong[:3])}")
    return f"{len(queries)} queries have found their proteins; the {len(merged)} hits are those of one search in the whole database"


def results(work: Path, steps: list[Step]) -> Iterator[str]:
    """A few of the answers, for people."""
    for line in (work / "hits.tsv").read_text().splitlines()[:3]:
        query, protein, identity, *_, evalue, score = line.split("\t")
        yield f"{query}: {protein}, {identity} % the same, E {evalue}, {score.strip()} bits"
