"""Compare the counts of wordlength.sh with counts made here: check.py TEXT RESULT. Exit status 1 if they differ."""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from pathlib import Path


def main(text_file: str, result_file: str) -> int:
    data = Path(text_file).read_bytes()
    right = Counter(map(len, re.findall(rb"[A-Za-z]+", gzip.decompress(data) if text_file.endswith(".gz") else data)))
    ours = {int(length): int(count) for length, count in (line.split() for line in Path(result_file).read_text().splitlines())}
    print(f"{sum(ours.values())} words, {len(ours)} lengths: {'as counted' if ours == right else 'NOT as counted'} here")
    return int(ours != right)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
