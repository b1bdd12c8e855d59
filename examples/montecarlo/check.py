"""Is π within five standard deviations? check.py RESULT. Exit status 1 if not."""

from __future__ import annotations

import math
import sys
from pathlib import Path


def main(result_file: str) -> int:
    value, error, points = map(float, Path(result_file).read_text().split())
    print(f"π is {value} ± {error} from {points:.0f} points; it is {abs(value - math.pi) / error:.1f} standard deviations off")
    return int(abs(value - math.pi) > 5 * error)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
