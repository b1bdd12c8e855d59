#!/bin/sh
# Build the C code and its tests with the address and undefined-behaviour sanitisers, warnings as errors, and run them.
# Needs cmake and a C compiler with libasan and libubsan. Usage: csrc/tests/run-sanitized.sh [BUILD-DIRECTORY]
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$top/build/sanitized}
mkdir -p "$(dirname "$build")"
cmake -S "$top" -B "$build" -DAMFS_SANITIZE=ON -DAMFS_TESTS=ON -DAMFS_WERROR=ON -DCMAKE_BUILD_TYPE=Debug >"$build.log" 2>&1 ||
    { cat "$build.log"; exit 1; }
cmake --build "$build" --parallel 2 >>"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:${ASAN_OPTIONS-}" UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS-}"
cd "$build" && ctest --output-on-failure
