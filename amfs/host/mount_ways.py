"""The ways to make a mount: which is tried next, and what is said when none is left. Pure.

Owns the order of trial and the words about what a site forbids. Must not know: how a mount is made, how the facts of a site are read.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

_NO_DEVICE = "this machine has no /dev/fuse (modprobe fuse; in a container: --device /dev/fuse)"


class Way(Enum):
    """In the order in which they are tried."""

    DIRECT = "mount(2)"  # by this process in its own mount namespace, as root, or with CAP_SYS_ADMIN in the user namespace
    NAMESPACE = "user namespace"  # in namespaces that a node's keeper has made; only programs that enter them see the mount
    HELPER = "fusermount3"


class Device(Enum):
    """/dev/fuse, as this process finds it."""

    OPEN = "open"
    CLOSED = "closed"
    ABSENT = "absent"


class Site(NamedTuple):
    """Facts about this machine, and this process on it, before anything is tried."""

    device: Device
    capable: bool  # has CAP_SYS_ADMIN
    forbids: str = ""  # why there can be no user namespaces
    hinders: str = ""  # why one may be of no use; it is tried all the same
    helper: str = ""  # the path of fusermount3


class Failure(NamedTuple):
    """A way that was tried in vain."""

    way: Way
    error: int  # errno; 0: only words
    why: str


def is_final(failure: Failure) -> bool:
    """Whether no other way can do better: the fault lies in the place of the mount, not in a right that is wanting."""
    return failure.way is Way.DIRECT and failure.error not in (errno.EPERM, errno.EACCES)


def next_way(site: Site, failed: Sequence[Failure], *, enters: bool) -> Way | None:
    """The way to try after those that failed; None: none is left. ``enters``: users of the mount can be made to enter namespaces."""
    if site.device is Device.ABSENT or any(map(is_final, failed)):
        return None
    possible = {
        Way.DIRECT: site.capable,
        Way.NAMESPACE: enters and not site.forbids and site.device is Device.OPEN,
        Way.HELPER: bool(site.helper) and site.device is Device.OPEN,
    }
    tried = {failure.way for failure in failed}
    return next((way for way in Way if possible[way] and way not in tried), None)


def refusal(site: Site, failed: Sequence[Failure], *, enters: bool) -> str:
    """Why there is no mount, and what would help, when ``next_way`` is None."""
    if site.device is Device.ABSENT:
        return _NO_DEVICE
    for failure in failed:
        if is_final(failure):
            return _NO_DEVICE if failure.error in (errno.ENODEV, errno.ENXIO) else failure.why
    if site.device is Device.CLOSED:
        return "/dev/fuse must be open to users (chmod 666 /dev/fuse)"
    words = {failure.way: failure.why for failure in failed}
    reasons = [f"mount(2): {words[Way.DIRECT]} (in a container: --cap-add SYS_ADMIN)" if Way.DIRECT in words else "mount(2) is for root"]
    if Way.NAMESPACE in words:
        reasons.append(f"in a user namespace: {words[Way.NAMESPACE]}" + (f" ({site.hinders})" if site.hinders else ""))
    elif site.forbids:
        reasons.append(f"user namespaces are forbidden here ({site.forbids})")
    elif not enters:
        reasons.append("in a user namespace only programs that enter it see a mount, as 'amfs shell' and blind tasks do")
    reasons.append(words.get(Way.HELPER) or "fusermount3 is not here (package fuse3)")
    return "; ".join(reasons)
