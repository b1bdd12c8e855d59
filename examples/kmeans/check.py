"""Compare the centroids of kmeans.sh with scikit-learn: check.py POINTS CENTROIDS. Exit status 1 if one is more than 1e-6 off."""

from __future__ import annotations

import sys

import numpy as np
from sklearn.cluster import KMeans


def main(points_file: str, centroids_file: str) -> int:
    points, ours = np.loadtxt(points_file), np.loadtxt(centroids_file)[:, 1:]
    right = KMeans(len(ours), init=points[: len(ours)], n_init=1, max_iter=10_000, tol=0, algorithm="lloyd").fit(points)
    worst = float(np.abs(right.cluster_centers_ - ours).max())
    print(f"{len(points)} points, {len(ours)} clusters, {right.n_iter_} iterations of scikit-learn; the largest difference is {worst:.1e}")
    return int(worst > 1e-6)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
