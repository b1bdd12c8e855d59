#!/bin/bash
# PageRank of a graph until it has converged: Listing 1 of AMFS Shell (SC'13).
#
#   amfs shell pagerank.sh GRAPH SCORES [PARTS [TOLERANCE]]
#
# GRAPH: lines "from to", compressed or not; SCORES: written, lines "page score", best first. Both are ordinary files, named
# by their absolute paths: the script stands in the session's file system.
# Damping 0.85; the rank of pages without links goes to all pages alike; ends when the scores change by less than TOLERANCE (1e-10) in sum.
set -e -o pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
PATH=$here/bin:$PATH
graph=$1 scores=$2 parts=${3:-8} tolerance=${4:-1e-10}

mkdir link
gzip -dcf "$graph" | awk -v parts="$parts" '
    /^#/ { next }
    { sub(/\r$/, "") }
    !($1 in page) { page[$1] = n++; order[n - 1] = $1 }
    !($2 in page) { page[$2] = n++; order[n - 1] = $2 }
    !(($1, $2) in seen) { seen[$1, $2]; links[$1] = links[$1] " " $2 }
    END {
        for (i = 0; i < n; i++) {
            printf "%s %.17g\n", order[i], 1 / n > "score.txt"
            if (!(order[i] in links)) print order[i] > "dangling.txt"
            print order[i] links[order[i]] > sprintf("link/part-%03d", i % parts)
        }
    }'
touch dangling.txt

converge=1
turn=0
while [ "$converge" -ne 0 ]; do
    awk 'FILENAME == "dangling.txt" { dangling[$1]; next } { n++ } $1 in dangling { lost += $2 } END { printf "%.17g\n", (0.15 + 0.85 * lost) / n }' \
        dangling.txt score.txt >base.txt
    AMFS_multicast score.txt base.txt

    mkdir temp
    for file in $(ls link); do
        AMFS_queue PageRank_Distribution link/$file score.txt temp/$file.temp
    done
    AMFS_execute

    AMFS_shuffle temp target

    mkdir result
    for file in $(ls target); do
        AMFS_queue PageRank_Sum target/$file base.txt result/$file.result
    done
    AMFS_execute

    AMFS_gather result
    cat result/* | sort >new-score.txt
    change=$(awk 'FNR == NR { old[$1] = $2; next } { d = $2 - old[$1]; sum += d < 0 ? -d : d } END { printf "%.3g", sum }' score.txt new-score.txt)
    converge=$(awk -v change="$change" -v tolerance="$tolerance" 'BEGIN { print(change >= tolerance) }')
    mv new-score.txt score.txt
    rm -r temp target result
    turn=$((turn + 1))
    echo "iteration $turn: the scores changed by $change" >&2
done
sort -k2,2gr -k1,1 score.txt >"$scores"
