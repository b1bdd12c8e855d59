#!/bin/bash
# π by throwing points at a square, in parallel.
#
#   amfs shell montecarlo.sh RESULT [TASKS [POINTS]]
#
# RESULT: written, a line "π error points", an ordinary file. POINTS (100,000) a task; the error is one standard deviation.
set -e
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
PATH=$here/bin:$PATH
result=$1 tasks=${2:-20} points=${3:-100000}

mkdir hits
for i in $(seq "$tasks"); do
    AMFS_queue Pi "$i" "$points" "hits/$i"
done
AMFS_execute

AMFS_gather hits
cat hits/* | awk '{ hits += $1; count += $2 } END {
    part = hits / count
    printf "%.6f %.6f %d\n", 4 * part, 4 * sqrt(part * (1 - part) / count), count
}' >"$result"
