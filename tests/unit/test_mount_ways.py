"""Which way to make a mount is tried next, and what is said when none is left."""

from __future__ import annotations

import errno
import itertools

import pytest

from amfs.host.mount_ways import Device, Failure, Site, Way, next_way, refusal

D, N, H = Way.DIRECT, Way.NAMESPACE, Way.HELPER
ROOT = Site(Device.OPEN, True, helper="/bin/fusermount3")
USER = Site(Device.OPEN, False, helper="/bin/fusermount3")
ALONE = Site(Device.OPEN, False)
FORBIDDEN = Site(Device.OPEN, False, forbids="max_user_namespaces is 0")
HINDERED = Site(Device.OPEN, False, hinders="AppArmor restricts them")
CONTAINER = Site(Device.OPEN, True)
CLOSED = Site(Device.CLOSED, False, helper="/bin/fusermount3")
CLOSED_IN_A_NAMESPACE = Site(Device.CLOSED, True)
ABSENT = Site(Device.ABSENT, True, helper="/bin/fusermount3")
PLACE = errno.ENOTDIR  # a fault of the place of the mount, not of a right

#: site, enters, errors of the ways in turn -> the ways that are tried, words that the refusal has, words that it has not
TABLE = [
    (ROOT, True, [], [D], [], []),
    (ROOT, False, [], [D], [], []),
    (ROOT, True, [errno.EPERM], [D, N], [], []),
    (ROOT, True, [errno.EPERM, errno.EPERM], [D, N, H], [], []),
    (ROOT, False, [errno.EACCES], [D, H], [], []),
    (ROOT, True, [errno.EPERM, errno.ENOSPC, 0], [D, N, H], ["mount(2): no 0", "user namespace: no 1", "no 2"], ["is for root"]),
    (ROOT, True, [PLACE], [D], ["no 0"], ["fusermount3", "namespace"]),
    (ROOT, True, [errno.ENODEV], [D], ["no /dev/fuse"], ["no 0"]),
    (CONTAINER, True, [errno.EPERM, errno.EPERM], [D, N], ["SYS_ADMIN", "no 1", "fusermount3 is not here"], []),
    (USER, True, [], [N], [], []),
    (USER, False, [], [H], [], []),
    (USER, True, [errno.EPERM], [N, H], [], []),
    (USER, True, [PLACE], [N, H], [], []),
    (USER, False, [0], [H], ["mount(2) is for root", "amfs shell", "no 0"], ["is not here"]),
    (ALONE, True, [errno.EACCES], [N], ["user namespace: no 0", "fusermount3 is not here"], ["SYS_ADMIN"]),
    (ALONE, False, [], [], ["mount(2) is for root", "amfs shell", "fusermount3 is not here"], []),
    (FORBIDDEN, True, [], [], ["forbidden here (max_user_namespaces is 0)", "fusermount3 is not here"], ["amfs shell"]),
    (FORBIDDEN, False, [], [], ["forbidden here (max_user_namespaces is 0)"], ["amfs shell"]),
    (HINDERED, True, [errno.EACCES], [N], ["no 0 (AppArmor restricts them)"], ["forbidden"]),
    (CLOSED, True, [], [], ["/dev/fuse must be open to users"], ["fusermount3"]),
    (CLOSED_IN_A_NAMESPACE, True, [errno.EACCES], [D], ["/dev/fuse must be open to users"], []),
    (ABSENT, True, [], [], ["no /dev/fuse"], ["fusermount3"]),
]  # fmt: skip


@pytest.mark.parametrize(("site", "enters", "errors", "ways", "words", "not_words"), TABLE)
def test_the_ways_in_turn(site: Site, enters: bool, errors: list[int], ways: list[Way], words: list[str], not_words: list[str]) -> None:
    failed: list[Failure] = []
    tried = []
    while (way := next_way(site, failed, enters=enters)) is not None:
        tried.append(way)
        if len(failed) == len(errors):
            break  # this one succeeds
        failed.append(Failure(way, errors[len(failed)], f"no {len(failed)}"))
    assert tried == ways
    assert len(failed) == len(errors) and bool(words) == (way is None)
    if way is None:
        said = refusal(site, failed, enters=enters)
        assert "\n" not in said and all(word in said for word in words) and not any(word in said for word in not_words), said


def test_it_ends_whatever_fails_and_always_says_why() -> None:
    for device, capable, forbids, helper, enters, error in itertools.product(
        Device, (False, True), ("", "forbidden"), ("", "/bin/fusermount3"), (False, True), (0, errno.EPERM, PLACE)
    ):
        site = Site(device, capable, forbids, "", helper)
        failed: list[Failure] = []
        while (way := next_way(site, failed, enters=enters)) is not None:
            assert way not in {failure.way for failure in failed} and (not failed or list(Way).index(way) > list(Way).index(failed[-1].way))
            failed.append(Failure(way, error, "it does not go"))
        assert refusal(site, failed, enters=enters)
