#!/bin/sh
# Build the C code and its tests with sanitisers, warnings as errors, and run them.
#   run-sanitized.sh [address|threads] [BUILD-DIRECTORY]     address (the default): address and undefined behaviour
# Needs cmake and a C compiler with libasan and libubsan, or libtsan.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
kind=${1:-address}
case $kind in
    address) flag=AMFS_SANITIZE build=${2:-$top/build/sanitized} ;;
    threads) flag=AMFS_SANITIZE_THREADS build=${2:-$top/build/tsan} ;;
    *) echo "no such kind: $kind (address or threads)" >&2; exit 2 ;;
esac
mkdir -p "$(dirname "$build")"
cmake -S "$top" -B "$build" -D$flag=ON -DAMFS_TESTS=ON -DAMFS_WERROR=ON -DCMAKE_BUILD_TYPE=Debug >"$build.log" 2>&1 ||
    { cat "$build.log"; exit 1; }
cmake --build "$build" --parallel 2 >>"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:${ASAN_OPTIONS-}" UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS-}"
export TSAN_OPTIONS="second_deadlock_stack=1:suppressions=$top/csrc/tests/tsan.supp:${TSAN_OPTIONS-}"
cd "$build" && ctest --output-on-failure --parallel 4 # most of them wait
