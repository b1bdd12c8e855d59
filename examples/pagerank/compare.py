"""pagerank.sh on random graphs, run by amfs and by GNU parallel on tmpfs with a shuffle that sorts: compare.py [LINKS…].

Both run the same script and the same programs, on one host with as many slots as CPUs (amfs: as many nodes), and stop after the same number
of iterations. Prints the seconds of each iteration and their ratio. Needs GNU parallel.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SLOTS = len(os.sched_getaffinity(0))
TOLERANCE = "0.05"  # some iterations: each takes the same time
LINKS = (100_000, 1_000_000, 5_000_000)


def write_graph(path: Path, links: int) -> None:
    """Pages with eight links each, in the mean; some pages are linked to much more than others."""
    chance = random.Random(1)
    pages = links // 8
    with path.open("w") as file:
        for _ in range(links):
            file.write(f"p{chance.randrange(pages)} p{int(pages * chance.random() ** 3)}\n")


def iterations(words: list[str], directory: Path) -> list[float]:
    """Seconds of each iteration but the first: the script tells the end of each."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SLOTS": str(SLOTS), "AMFS_RUN_DIR": str(directory)}
    ends = []
    with subprocess.Popen(words, cwd=directory, env=env, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if re.match(r"iteration \d+:", line):
                ends.append(time.monotonic())
    if process.returncode or len(ends) < 2:
        sys.exit(f"{words[0]} ended with status {process.returncode}:\n{''.join(said[-20:])}")
    return [end - begin for begin, end in itertools.pairwise(ends)]


def main(sizes: list[int]) -> int:
    if shutil.which("parallel") is None:
        sys.exit("compare.py needs GNU parallel (apt-get install parallel)")
    print(f"{SLOTS} slots; seconds of an iteration (median)\n\n{'links':>9}  GNU parallel   amfs  faster by")
    for links in sizes:
        seconds = []
        for tool in ("parallel", "amfs"):
            with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="pagerank-") as place:
                work, graph, out = Path(place) / "work", Path(place) / "graph", Path(place) / "scores"
                work.mkdir(0o700)
                write_graph(graph, links)
                script = [str(HERE / "pagerank.sh"), str(graph), str(out), str(SLOTS), TOLERANCE]
                if tool == "amfs":
                    words = ["amfs", "shell", "-N", str(SLOTS), "-s", "1", *script]
                else:
                    words = ["bash", "-c", '. "$0"; exec bash "$@"', str(HERE.parent / "gnu-parallel.sh"), *script]
                seconds.append(statistics.median(iterations(words, work)))
        print(f"{links:>9,}  {seconds[0]:12.2f}  {seconds[1]:5.2f}  {seconds[0] / seconds[1]:8.2f}×")
    return 0


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or list(LINKS)))
