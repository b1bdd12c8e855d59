"""The shell functions of ``amfs shell-init``: ``AMFS_queue`` without a process, for bash, zsh and fish.

Owns their text. They write records as ``queueing.spool`` reads them. A call that is not plain (options, no words, a directory outside of
the mount) they hand to the program AMFS_queue. Each shell process has a spool file of its own, since a shell may split what it writes. The
environment is written to a file by the shell and looked up among those of earlier calls; only for a new one ``env -0`` is run.
"""

from __future__ import annotations

import shlex

BASH = r"""
declare -gA __amfs_envs=()
AMFS_queue() {
    if [[ $# -eq 0 || -z ${1-} || $1 == -* || ${!#} == -[io]f || -z ${AMFS_MOUNT-} || $PWD/ != "$AMFS_MOUNT"/* ]]; then
        @PROGRAM@ "$@"
        return
    fi
    local __amfs_here=$PWD __amfs_now __amfs_env
    local +x PWD OLDPWD
    if [[ ${__amfs_pid-} != "$BASHPID" ]]; then
        printf -v __amfs_file '%s/%d-%(%s)T%05d.shell' "$AMFS_SPOOL" "$BASHPID" -1 "$RANDOM"
        __amfs_pid=$BASHPID
    fi
    { declare -px >|"$AMFS_SPOOL/env/.$BASHPID"; } 2>/dev/null || { __amfs_gone; return; }
    @READ@
    __amfs_env=${__amfs_envs[$__amfs_now]-}
    if [[ -z $__amfs_env ]]; then
        printf -v __amfs_env '%d-%(%s)T-%d' "$BASHPID" -1 "${#__amfs_envs[@]}"
        command -p env -0 >|"$AMFS_SPOOL/env/$__amfs_env" || { __amfs_gone; return; }
        __amfs_envs[$__amfs_now]=$__amfs_env
    fi
    { printf '\0q1\0' && printf '=%s\0' "$__amfs_here" "$AMFS_MOUNT" "$__amfs_env" "$@" && printf '.\0'; } >>"$__amfs_file" && return
    __amfs_pid=
    __amfs_gone
}
__amfs_gone() {
    if [[ -d ${AMFS_SPOOL-} ]]; then
        printf 'AMFS_queue: cannot record the task in %s\n' "$AMFS_SPOOL" >&2
        return 1
    fi
    printf 'AMFS_queue: the session is gone\n' >&2
    return 4
}
"""

#: How bash reads a file without a process; before 5.2 it starts one for $(<file).
_BASH_READ = """if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 502)); then
        __amfs_now=$(<"$AMFS_SPOOL/env/.$BASHPID")
    else
        IFS= read -rd '' __amfs_now <"$AMFS_SPOOL/env/.$BASHPID"
    fi"""

ZSH = r"""
zmodload zsh/system zsh/datetime
AMFS_queue() {
    emulate -L zsh
    if [[ $# -eq 0 || -z $1 || $1 == -* || ${@[-1]} == -[io]f || -z $AMFS_MOUNT || $PWD/ != "$AMFS_MOUNT"/* ]]; then
        @PROGRAM@ "$@"
        return
    fi
    local __amfs_now
    if [[ $__amfs_pid != $sysparams[pid] ]]; then
        typeset -g __amfs_pid=$sysparams[pid]
        typeset -g __amfs_file=$AMFS_SPOOL/$__amfs_pid-${EPOCHSECONDS}$RANDOM.shell
    fi
    { typeset -px >| $AMFS_SPOOL/env/.$__amfs_pid } 2>/dev/null || { __amfs_gone; return }
    __amfs_now=$(<$AMFS_SPOOL/env/.$__amfs_pid)
    if [[ $__amfs_now != $__amfs_known ]]; then
        typeset -gi __amfs_count
        typeset -g __amfs_env=$__amfs_pid-$EPOCHSECONDS-$((++__amfs_count))
        command env -0 >| $AMFS_SPOOL/env/$__amfs_env || { __amfs_gone; return }
        typeset -g __amfs_known=$__amfs_now
    fi
    { printf '\0q1\0' && printf '=%s\0' "$PWD" "$AMFS_MOUNT" "$__amfs_env" "$@" && printf '.\0' } >> $__amfs_file && return
    __amfs_pid=
    __amfs_gone
}
__amfs_gone() {
    if [[ -d $AMFS_SPOOL ]]; then
        print -u2 -r -- "AMFS_queue: cannot record the task in $AMFS_SPOOL"
        return 1
    fi
    print -u2 -r -- 'AMFS_queue: the session is gone'
    return 4
}
"""

FISH = r"""
function AMFS_queue
    set -l inside (string sub --length (math 1 + (string length -- "$AMFS_MOUNT")) -- $PWD/)
    if test (count $argv) -eq 0; or test -z "$argv[1]"; or string match -q -- '-*' $argv[1]; or contains -- $argv[-1] -if -of
        or test -z "$AMFS_MOUNT"; or test "$inside" != "$AMFS_MOUNT/"
        @PROGRAM@ $argv
        return
    end
    if not set -q __amfs_file
        set -g __amfs_file $AMFS_SPOOL/$fish_pid-(date +%s)(random).shell
    end
    if not set -x >$AMFS_SPOOL/env/.$fish_pid
        __amfs_gone
        return
    end
    read -lz now <$AMFS_SPOOL/env/.$fish_pid
    if test "$now" != "$__amfs_known"
        set -q __amfs_count; or set -g __amfs_count 0
        set -g __amfs_count (math $__amfs_count + 1)
        set -g __amfs_env $fish_pid-$__amfs_count
        command env -0 >$AMFS_SPOOL/env/$__amfs_env; or begin; __amfs_gone; return; end
        set -g __amfs_known $now
    end
    begin; printf '\0q1\0'; and printf '=%s\0' $PWD $AMFS_MOUNT $__amfs_env $argv; and printf '.\0'; end >>$__amfs_file; and return
    set -e __amfs_file
    __amfs_gone
end
function __amfs_gone
    if test -d "$AMFS_SPOOL"
        echo "AMFS_queue: cannot record the task in $AMFS_SPOOL" >&2
        return 1
    end
    echo 'AMFS_queue: the session is gone' >&2
    return 4
end
"""


quoted = shlex.quote  # for bash and zsh


def script(shell: str, program: str, variables: dict[str, str], path: str) -> str:
    """Text for ``eval``: the variables that name the session, the commands on PATH, and the function. ``program``: that AMFS_queue."""
    if shell == "fish":
        lines = [f"set -gx {name} {_fish(value)}" for name, value in variables.items()]
        lines.append(f"contains -- {_fish(path)} $PATH; or set -gx PATH {_fish(path)} $PATH")
        return "\n".join(lines) + FISH.replace("@PROGRAM@", _fish(program))
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f'case ":$PATH:" in *:{shlex.quote(path)}:*) ;; *) export PATH={shlex.quote(path)}:"$PATH" ;; esac')
    text = BASH.replace("@READ@", _BASH_READ) if shell == "bash" else ZSH
    return "\n".join(lines) + text.replace("@PROGRAM@", shlex.quote(program))


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
