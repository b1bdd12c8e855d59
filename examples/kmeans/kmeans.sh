#!/bin/bash
# K-means of points in the plane, until no centroid moves: Listing 3 of AMFS Shell (SC'13).
#
#   amfs shell kmeans.sh POINTS CENTROIDS [PARTS [CLUSTERS]]
#
# POINTS: lines "x y"; CENTROIDS: written, lines "number x y". Both are ordinary files. The first CLUSTERS (16) points are the first centroids.
# A cluster without points keeps its centroid.
set -e -o pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
PATH=$here/bin:$PATH
points=$1 centroids=$2 parts=${3:-8} clusters=${4:-16}

mkdir input
split -n "l/$parts" -a 3 -d "$points" input/part-
head -n "$clusters" "$points" | awk '{ print NR - 1, $1, $2 }' | sort >centroid.txt

converge=1
turn=0
while [ "$converge" -ne 0 ]; do
    AMFS_multicast centroid.txt

    mkdir temp
    for file in $(ls input); do
        AMFS_queue KMeans -Group input/$file centroid.txt temp/$file.temp
    done
    AMFS_execute

    AMFS_shuffle temp cluster

    mkdir centroid
    for file in $(ls cluster); do
        AMFS_queue KMeans -centroid cluster/$file centroid/$file.centroid
    done
    AMFS_execute

    AMFS_gather centroid
    cat centroid/* centroid.txt | sort -u -k1,1 -s >new-centroid.txt
    converge=$(diff -q centroid.txt new-centroid.txt >/dev/null && echo 0 || echo 1)
    mv new-centroid.txt centroid.txt
    rm -r temp cluster centroid
    turn=$((turn + 1))
    echo "iteration $turn" >&2
done
sort -n centroid.txt >"$centroids"
