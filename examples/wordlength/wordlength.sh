#!/bin/bash
# How many words of a text have each length: map, count, and a tree of merges of two, all queued at once (Hercules §V-B, Listing 5 of AMFS Shell).
#
#   amfs shell wordlength.sh TEXT RESULT [PARTS]
#
# TEXT and RESULT (lines "length count") are ordinary files. A task that is started before its inputs are there waits for them.
set -e
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
PATH=$here/bin:$PATH
text=$1 result=$2 parts=${3:-8}

mkdir text lengths counts
gzip -dcf "$text" >all.txt
split -n "l/$parts" -a 3 -d all.txt text/part-
level=()
for file in $(ls text); do
    AMFS_queue WordLength map "text/$file" "lengths/$file"
    AMFS_queue WordLength count "lengths/$file" "counts/$file"
    level+=("counts/$file")
done
merges=0
while [ ${#level[@]} -gt 1 ]; do
    next=()
    for ((i = 0; i + 1 < ${#level[@]}; i += 2)); do
        merged=counts/merged-$((merges += 1))
        AMFS_queue WordLength merge "${level[i]}" "${level[i + 1]}" "$merged"
        next+=("$merged")
    done
    [ $((${#level[@]} % 2)) -eq 0 ] || next+=("${level[-1]}")
    level=("${next[@]}")
done
AMFS_execute
cat "${level[0]}" >"$result"
