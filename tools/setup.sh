#!/bin/sh
# Make the virtual environment and install amfs into it (editable), with the extras named: tools/setup.sh [--system] test,dev
#
# --system   also install what the system lacks (a C compiler, Python headers, venv), when root or a password-less sudo allows; without
#            it, or where that is not possible, say exactly what to install and stop with status 5.
# VENV       where (default .venv)      PYTHON   which interpreter (default: the newest one >= 3.11 found)
#
# Does nothing when the environment already has these extras of this state of the sources.
set -eu
cd "$(dirname "$0")/.."

system=no
if [ "${1:-}" = --system ]; then system=yes; shift; fi
extras=${1:-}
venv=${VENV:-.venv}
started=$(date +%s)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 5; }

# ── what the system has to bring ──

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" && printf '%s\n' "$PYTHON"
        return 0
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            command -v "$name"
            return 0
        fi
    done
}

missing() {  # prints the lacking ones, as words of ours: python compiler headers venv
    if [ -z "$python" ]; then
        printf 'python '
    else
        "$python" -c 'import ensurepip, venv' 2>/dev/null || printf 'venv '
        "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || printf 'headers '
    fi
    command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || printf 'compiler '
    if [ $system = yes ] && ! has_programs; then printf 'programs '; fi
}

has_programs() {  # that the tests run; where there is no apt-get, the tests of some are left out and say so
    more=
    if command -v apt-get >/dev/null; then
        more="strace nginx mProjectPP rsvg-convert blastn glpsol dot munged slurmctld slurmd sbatch ssh sshd mpiexec.openmpi chromium chirp_server"
        # fusepy loads libfuse 2, which brings no program
        [ -z "$python" ] || "$python" -c 'import ctypes.util, sys; sys.exit(not ctypes.util.find_library("fuse"))' || return 1
    fi
    for program in fusermount3 git ip make rsync sqlite3 tar $more; do PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || return 1; done
}

install_command() {  # how this system installs $1 (our words); empty if unknown
    if command -v apt-get >/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
        case $python in /usr/bin/*) ;; *) version= ;; esac
        packages=
        for word in $1; do
            case $word in
                python) packages="$packages python3 python3-dev python3-venv" ;;
                headers) packages="$packages python${version:-3}-dev" ;;
                venv) packages="$packages python${version:-3}-venv" ;;
                compiler) packages="$packages gcc libc6-dev" ;;
                programs) packages="$packages fuse3 graphviz munge openssh-client openssh-server openmpi-bin slurm-client slurmctld slurmd libfuse2 git iproute2 make rsync sqlite3 strace nginx-light tar librsvg2-bin montage montage-gridtools ncbi-blast+ glpk-utils chromium coop-computing-tools" ;;
            esac
        done
        echo "apt-get install -y --no-install-recommends$packages"
    elif command -v dnf >/dev/null; then
        echo "dnf install -y $(for word in $1; do case $word in python) echo python3.12 python3.12-devel ;; headers) echo python3-devel ;; venv) echo python3 ;; compiler) echo gcc ;; programs) echo fuse3 fuse-libs git iproute make rsync sqlite tar ;; esac; done | xargs)"
    elif command -v zypper >/dev/null; then
        echo "zypper --non-interactive install $(for word in $1; do case $word in python) echo python312 python312-devel ;; headers) echo python3-devel ;; venv) echo python3-venv ;; compiler) echo gcc ;; programs) echo fuse3 git iproute2 make rsync sqlite3 tar ;; esac; done | xargs)"
    elif command -v apk >/dev/null; then
        echo "apk add $(for word in $1; do case $word in python) echo python3 python3-dev ;; headers) echo python3-dev linux-headers ;; venv) echo python3 ;; compiler) echo gcc musl-dev linux-headers ;; programs) echo fuse3 git iproute2 make rsync sqlite tar ;; esac; done | xargs)"
    fi
}

in_words() {
    for word in $1; do
        case $word in
            python) echo "Python 3.11 or newer" ;;
            venv) echo "Python's venv module" ;;
            headers) echo "Python's C headers" ;;
            compiler) echo "a C compiler" ;;
            programs) echo "programs that the tests run (fuse3, git, ip, make, rsync, sqlite3, tar)" ;;
        esac
    done | paste -sd, - | sed 's/,/, /g'
}

python=$(find_python)
if [ -z "$python" ] && [ -n "${PYTHON:-}" ]; then fail "PYTHON=$PYTHON is no Python 3.11 or newer"; fi
lacking=$(missing)
if [ -n "$lacking" ]; then
    command=$(install_command "$lacking")
    [ -n "$command" ] || fail "this machine lacks $(in_words "$lacking"). Install that, then try again."
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root="sudo -n"; else as_root=no; fi
    fi
    if [ $system = no ] || [ "$as_root" = no ]; then
        fail "this machine lacks $(in_words "$lacking"). As root, run:  $command"
    fi
    say "installing system packages: $command"
    case $command in apt-get*) $as_root apt-get update -q >/dev/null || say "apt-get update failed; trying with the lists there are" ;; esac
    # shellcheck disable=SC2086  # both are meant to be split into words
    DEBIAN_FRONTEND=noninteractive $as_root $command || fail "that did not work; as root, run:  $command"
    python=$(find_python)
    lacking=$(missing)
    [ -z "$lacking" ] || fail "still lacking after that: $(in_words "$lacking")"
fi

# ── the environment ──

state=$({ cat pyproject.toml CMakeLists.txt; find csrc benchmarks -name '*.[ch]' | LC_ALL=C sort | xargs cat; } | cksum | tr ' ' -)
stamp=$venv/.amfs-setup
installed=
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$state" ]; then installed=$(sed -n 2p "$stamp"); fi
wanted=$(printf '%s,%s' "$installed" "$extras" | tr ',' '\n' | sed '/^$/d' | LC_ALL=C sort -u | paste -sd, -)
if [ -n "$installed" ] && [ "$wanted" = "$installed" ] && [ -x "$venv/bin/amfs" ]; then exit 0; fi

if [ ! -x "$venv/bin/python" ]; then
    say "making $venv with $python ($("$python" -V))"
    "$python" -m venv "$venv"
fi
say "installing amfs-hpc[$wanted] into $venv"
log=$venv/setup.log
compile=--compile
[ -z "${PYTHONPYCACHEPREFIX:-}" ] || compile=--no-compile  # pip would compile into a place that goes soon
if ! "$venv/bin/python" -m pip install --disable-pip-version-check --no-input $compile -e ".${wanted:+[$wanted]}" >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    fail "pip install failed; the whole log is $log"
fi
printf '%s\n%s\n' "$state" "$wanted" >"$stamp"
say "done in $(($(date +%s) - started)) s"
