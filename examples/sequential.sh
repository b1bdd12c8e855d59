# AMFS_queue and the others for a shell without amfs: each task runs at once, one after the other. "source" it, and the scripts of the examples
# are ordinary sequential scripts. It shows what the commands mean; the tests compare the results.
AMFS_queue() { while [ "${1#-}" != "$1" ]; do shift 2; done; "$@"; }
AMFS_execute() { :; }
AMFS_multicast() { :; }
AMFS_gather() { :; }
AMFS_allgather() { :; }
AMFS_scatter() { :; }
AMFS_shuffle() { mkdir -p "$2" && cat "$1"/* | sort -k1,1 >"$2/part-00000"; }  # lines with the same first column come into the same file
export -f AMFS_queue AMFS_execute AMFS_multicast AMFS_gather AMFS_allgather AMFS_scatter AMFS_shuffle
