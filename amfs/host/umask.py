"""The umask of this process, read without changing it: a file that another thread makes meanwhile would get the wrong mode."""

from __future__ import annotations

from amfs.errors import SystemSetupError


def umask() -> int:
    """Raises SystemSetupError where the system's view of processes is missing, as in a bare root directory."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except FileNotFoundError:
        raise SystemSetupError("/proc is not mounted here, and amfs needs it: mount -t proc proc /proc") from None
    return 0o022
