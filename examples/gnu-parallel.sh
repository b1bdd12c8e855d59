# AMFS_queue and the others on one host without amfs, to compare with: GNU parallel runs the tasks, SLOTS (2) at a time, and the shuffle groups
# lines by sorting them, into SLOTS files. Use it as sequential.sh, in a directory in memory.
SLOTS=${SLOTS:-2}
AMFS_queue() { while [ "${1#-}" != "$1" ]; do shift 2; done; printf '%q ' "$@" >>.queue && echo >>.queue; }
AMFS_execute() { parallel --will-cite -j "$SLOTS" --halt now,fail=1 <.queue && rm .queue; }
AMFS_multicast() { :; }
AMFS_gather() { :; }
AMFS_allgather() { :; }
AMFS_scatter() { :; }
AMFS_shuffle() {
    mkdir -p "$2" && cat "$1"/* | LC_ALL=C sort -k1,1 -S 50% --parallel="$SLOTS" | awk -v to="$2" -v size="$(($(cat "$1"/* | wc -c) / SLOTS + 1))" '
        $1 != key && written >= size { close(file); part++; written = 0 }
        { key = $1; file = sprintf("%s/part-%05d", to, part); print >file; written += length() + 1 }'
}
export SLOTS
export -f AMFS_queue AMFS_execute AMFS_multicast AMFS_gather AMFS_allgather AMFS_scatter AMFS_shuffle
