#!/bin/sh
# Run the examples that are parallel scripts, and check their answers: scripts.sh [NAME …] (default: all). `make scripts` sets everything up first.
#
# Needs amfs and python (with the extra "scripts") on the PATH. RESULTS: the directory of the results (default: a new one).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
results=${RESULTS:-$(mktemp -d)}

for name in ${*:-pagerank kmeans montecarlo wordlength blast}; do
    cd "$here/$name"
    echo "── $name ──"
    case $name in
        pagerank)
            amfs shell pagerank.sh "$PWD/graphs/wiki-Vote.txt.gz" "$results/scores"
            python check.py graphs/wiki-Vote.txt.gz "$results/scores" ;;
        kmeans)
            python points.py "${POINTS:-20000}" "$results/points"
            amfs shell kmeans.sh "$results/points" "$results/centroids" 4 25
            python check.py "$results/points" "$results/centroids" ;;
        montecarlo)
            amfs shell montecarlo.sh "$results/pi"
            python check.py "$results/pi" ;;
        wordlength)
            amfs shell wordlength.sh "$PWD/text/ulysses.txt.gz" "$results/lengths"
            python check.py text/ulysses.txt.gz "$results/lengths" ;;
        blast)
            python queries.py genome/lambda_virus.fa 200 "$results/queries.fa"
            amfs shell blast.sh "$PWD/genome/lambda_virus.fa" "$results/queries.fa" "$results/hits"
            python check.py "$results/queries.fa" "$results/hits" ;;
        *) echo "there is no example $name" >&2; exit 2 ;;
    esac
done
