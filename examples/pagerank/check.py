"""Compare the scores of pagerank.sh with networkx: check.py GRAPH SCORES. Exit status 1 if a score differs by more than 1e-8."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import networkx


def main(graph_file: str, scores_file: str) -> int:
    graph = networkx.DiGraph()
    data = Path(graph_file).read_bytes()
    for line in (gzip.decompress(data) if graph_file.endswith(".gz") else data).decode().splitlines():
        if not line.startswith("#"):
            graph.add_edge(*line.split()[:2])
    right = networkx.pagerank(graph, alpha=0.85, tol=1e-13, max_iter=1000)
    ours = {page: float(score) for page, score in (line.split() for line in Path(scores_file).read_text().splitlines())}
    if ours.keys() != right.keys():
        print(f"{len(ours)} pages instead of {len(right)}")
        return 1
    worst = max(abs(ours[page] - right[page]) for page in right)
    print(f"{len(ours)} pages; the largest difference from networkx is {worst:.1e}")
    for page, score in list(ours.items())[:5]:
        print(f"{page:>10} {score:.6f}")
    return int(worst > 1e-8)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
