"""Does each query of queries.py have its one hit where it was cut? check.py QUERIES HITS. Exit status 1 if not."""

from __future__ import annotations

import sys
from pathlib import Path


def main(queries_file: str, hits_file: str) -> int:
    queries = [line[1:].strip() for line in Path(queries_file).read_text().splitlines() if line.startswith(">")]
    hits = {row[0]: row for row in (line.split("\t") for line in Path(hits_file).read_text().splitlines())}
    wrong = []
    for query in queries:
        _, first, last = query.split("_")
        row = hits.get(query)
        if row is None or (row[8], row[9]) != (first, last):
            wrong.append(query)
    print(f"{len(queries)} queries, {len(queries) - len(wrong)} found where they were cut")
    return int(bool(wrong) or len(hits) != len(queries))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
