#!/bin/sh
# Installs a wheel in a new root directory of an older Debian, and runs the README's examples there: sh tools/try_wheel.sh WHEEL [SUITE]
#
# SUITE    the Debian to try it on (default bullseye: Debian 11, glibc 2.31)
# SOURCES  the Debian whose package of Python 3.11 is compiled in it, since bullseye has 3.9 (default bookworm)
# ROOT_DIR where the root directory is kept for the next time (default: made, and removed at the end)
#
# Needs root, mmdebstrap and Debian's packages. It takes some five minutes, most of them for Python.
set -eu
wheel=$(realpath "${1:?usage: sh tools/try_wheel.sh WHEEL [SUITE]}")
suite=${2:-bullseye}
here=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "try_wheel.sh: needs root, to enter the new root directory" >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "try_wheel.sh: mmdebstrap is missing (a package of Debian has that name)" >&2; exit 1; }

kept=${ROOT_DIR:-}
root=${kept:-$(mktemp -d /tmp/amfs-root.XXXXXX)}
# Mounts of a namespace of its own end with the script, however it ends.
if [ -z "${AMFS_OWN_MOUNTS:-}" ]; then
    [ -n "$kept" ] || trap 'rm -rf --one-file-system "$root"' EXIT
    AMFS_OWN_MOUNTS=1 ROOT_DIR=$root unshare --mount --pid --fork --kill-child sh "$0" "$wheel" "$suite"
    exit
fi

if [ ! -e "$root/usr/bin/apt-get" ]; then
    echo "== a root directory of $suite"
    mmdebstrap --quiet --variant=minbase --mode=root --include=ca-certificates,build-essential,zlib1g-dev,libssl-dev,libffi-dev,libbz2-dev,liblzma-dev,libsqlite3-dev,procps,fuse3 "$suite" "$root"
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/tmp"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"  # a site's own authority may be among them
inside() { env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${PIP_INDEX_URL:+"PIP_INDEX_URL=$PIP_INDEX_URL"} chroot "$root" sh -euc "$1"; }

if ! inside 'python3.11 -c "import ssl, sqlite3, ctypes"' 2>/dev/null; then
    echo "== Python 3.11 from the sources of ${SOURCES:-bookworm}, in ${suite}"
    sed -n "s/^deb \(.*\) $suite main\$/deb-src \1 ${SOURCES:-bookworm} main/p" "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/python.list"
    inside 'apt-get -qq update
        mkdir -p /build && cd /build
        apt-get -qq -o APT::Sandbox::User=root source --download-only python3.11
        tar -xf python3.11_*.orig.tar.* --strip-components=1
        ./configure -q >log 2>&1 || { tail -20 log >&2; exit 1; }
        make -s -j"$(nproc)" >>log 2>&1 || { tail -20 log >&2; exit 1; }
        make -s altinstall >>log 2>&1
        cd / && rm -rf /build'
fi

echo "== the wheel"
mkdir "$root/tmp/wheel" "$root/tmp/tools"
cp "$wheel" "$root/tmp/wheel"
cp "$here/README.md" "$here/tools/run_page.py" "$root/tmp/tools"
inside 'python3.11 -m venv /tmp/env
    /tmp/env/bin/pip install -q --disable-pip-version-check /tmp/wheel/*.whl
    /tmp/env/bin/amfs --version
    ldd --version | head -1
    /tmp/env/bin/python /tmp/tools/run_page.py /tmp/tools/README.md --bin /tmp/env/bin'
echo "== the README's examples ran in $suite"
