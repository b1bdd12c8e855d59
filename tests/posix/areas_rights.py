"""Cases for owners and modes: permitted and refused calls, and which bits go when."""

# ruff: noqa: E501  (a case is a line of a table)

from __future__ import annotations

import itertools
from collections.abc import Iterator

from areas_names import MAKE, made
from tables import Case, case, group

#: Users of these cases: nobody of the machine. 2001 owns what they own, in group 2005; 2002 is in the group, 2003 is a stranger.
OWNER, MEMBER, STRANGER = "as 2001 2001 2005", "as 2002 2002 2005", "as 2003 2003"
USERS = {"the owner": OWNER, "a member": MEMBER, "a stranger": STRANGER, "root": "as 0"}
MODES = ("0", "0100", "0200", "0400", "0300", "0500", "0600", "0700", "0010", "0020", "0040", "0070", "0001", "0002", "0004", "0007", "0077", "0707", "0750", "0777")


@group
def chmod() -> Iterator[Case]:
    for kind, mode in itertools.product(MAKE, ("0", "0777", "0640", "04755", "02755", "01755", "07777", "06111")):
        yield case(f"{mode} of a {kind}", f"{made(kind, 'n')}\nchmod n {mode}\nstat n mode\nlstat n mode")
    for user, kind in itertools.product(USERS, ("file", "directory", "fifo")):
        yield case(f"of a {kind} by {user}", f"{made(kind, 'n')}\nchown n 2001 2005\n{USERS[user]}\nchmod n 0640\nlstat n mode")
        yield case(f"setgid of a {kind} by {user}, own group", f"{made(kind, 'n')}\nchown n 2001 2005\n{USERS[user]}\nchmod n 02750\nlstat n mode")
        yield case(f"setgid of a {kind} by {user}, foreign group", f"{made(kind, 'n')}\nchown n 2001 2009\n{USERS[user]}\nchmod n 02750\nlstat n mode\nchmod n 06777\nlstat n mode")
        yield case(f"sticky {kind} by {user}", f"{made(kind, 'n')}\nchown n 2001 2005\n{USERS[user]}\nchmod n 01644\nlstat n mode")
    yield case("errors", "chmod no 0644 => !ENOENT\nwrite_file f\nchmod f/x 0644 => !ENOTDIR\nchmod '' 0644 => !ENOENT\nmkdir d\nwrite_file d/f\nchmod d 0\nas 2003\nchmod d/f 0777 => !EACCES")
    yield case("through links", "write_file f x 0644\nsymlink f l\nchmod l 0600\nlstat f mode\nlstat l mode")
    yield case("by descriptor", "open f n RDWR|CREAT 0644\nfchmod f 0400\nfstat f mode\nwrite f still\nclose f\nlstat n mode\nas 2001\nopen f n RDONLY => !EACCES")
    yield case("of a file with names", "write_file a\nlink a b\nchmod a 0751\nlstat b mode\nrename b c\nchmod c 0111\nlstat a mode")
    yield case("an open file keeps its rights", "write_file n text 0644\nas 2003\nopen f n RDONLY\np1 chmod n 0\nas 0\nchmod n 0\nas 2003\nread f 4 => text\nopen g n RDONLY => !EACCES\nclose f", in_turns=False)
    yield case("the mode counts at once", "write_file n text 0600\nas 2003\nread_file n => !EACCES\nas 0\nchmod n 0604\nas 2003\nread_file n => text\nas 0\nchmod n 0600\nas 2003\nread_file n => !EACCES")


@group
def chown() -> Iterator[Case]:
    for kind in MAKE:
        yield case(f"of a {kind}", f"{made(kind, 'n')}\nchown n 2001 2005\nstat n uid gid\nlstat n uid gid\nlchown n 2002 2006\nlstat n uid gid\nlchown n -1 2007\nlchown n 2003 -1\nlstat n uid gid\nlchown n -1 -1\nlstat n uid gid")
    for user, (uid, gid), mode in itertools.product(USERS, ((2001, 2001), (2001, 2005), (-1, 2005), (-1, 2009), (2002, -1), (2003, 2009), (-1, -1), (2001, -1), (0, 0)), ("0644", "06755")):
        for kind in ("file", "directory"):
            yield case(f"of a {kind} {mode} to {uid}:{gid} by {user}", f"{made(kind, 'n')}\nchown n 2001 2001\nchmod n {mode}\n{USERS[user]}\nchown n {uid} {gid}\nlstat n uid gid mode")
    for mode, kind in itertools.product(("04755", "02755", "02745", "06777", "06666", "01777", "07777"), ("file", "directory", "fifo", "link to file")):
        for user in ("root", "the owner"):
            yield case(f"bits {mode} of a {kind} given away by {user}", f"{made(kind, 'n')}\nchown n 2001 2001\nchmod n {mode}\n{USERS[user]}\nchown n -1 2005\nstat n mode gid\nchown n 2001 2005\nstat n mode\nlchown n 2001 2001\nlstat n mode gid")
    yield case("errors", "chown no 1 1 => !ENOENT\nwrite_file f\nchown f/x 1 1 => !ENOTDIR\nsymlink no l\nchown l 1 1 => !ENOENT\nlchown l 1 1\nlstat l uid gid")
    yield case("large numbers", "write_file f\nchown f 4294967294 4294967293\nlstat f uid gid\nchown f 65536 70000\nlstat f uid gid")
    yield case("by descriptor, and of what has no name", "open f n RDWR|CREAT 0644\nfchown f 2001 2002\nlstat n uid gid\nunlink n\nfchown f 5 6\nfstat f uid gid\nclose f", in_turns=False)
    yield case("rights change with the owner", "write_file n text 0600\nas 2001\nread_file n => !EACCES\nas 0\nchown n 2001 2001\nas 2001\nread_file n => text\nas 0\nchown n 2002 2002\nas 2001\nread_file n => !EACCES")


@group
def rights_of_files() -> Iterator[Case]:
    for mode, user in itertools.product(MODES, USERS):
        yield case(
            f"{mode} for {user}",
            f"write_file n text\nchown n 2001 2005\nchmod n {mode}\n{USERS[user]}\nread_file n\nopen f n RDONLY\nopen f n WRONLY\nopen f n RDWR\nopen f n WRONLY|TRUNC\nopen f n WRONLY|APPEND\n"
            "access n F_OK\naccess n R_OK\naccess n W_OK\naccess n X_OK\naccess n R_OK|W_OK\neaccess n R_OK\neaccess n W_OK|X_OK\nexec ./n\ntruncate n 2\nutimens_null n\nutimens n 5 6\nlstat n size mode",
            in_turns=False,
        )  # fmt: skip


@group
def rights_of_directories() -> Iterator[Case]:
    for mode, user in itertools.product(MODES, USERS):
        yield case(
            f"{mode} for {user}",
            f"mkdir d\nwrite_file d/f text 0666\nmkdir d/e 0777\nchmod d/f 0666\nchmod d/e 0777\nchown d 2001 2005\nchmod d {mode}\nwrite_file g x 0666\nchmod . 0777\n{USERS[user]}\n"
            "listdir d\nstat d/f size\nread_file d/f\nread_file d/no\nwrite_file d/new x\nwrite_file d/f other\nmkdir d/m\nsymlink x d/s\nmknod d/p fifo\nlink g d/l\nunlink d/f\nrmdir d/e\nrmdir d/no\nunlink d/no\n"
            "rename d/f h\nrename g d/f\naccess d R_OK\naccess d X_OK\naccess d W_OK|X_OK\nchmod d/f 0600\nlistdir d/e\nwrite_file d/e/deep x\nopendir o d",
        )  # fmt: skip
    yield case("a path needs all of its directories", "mkdir a 0755\nmkdir a/b 0700\nmkdir a/b/c 0777\nwrite_file a/b/c/f text 0644\nas 2003\nread_file a/b/c/f => !EACCES\nstat a/b => {'type': 'dir'}\nlistdir a\nas 0\nchmod a/b 0711\nas 2003\nread_file a/b/c/f => text\nlistdir a/b => !EACCES".replace(" => {'type': 'dir'}", ""))
    yield case("a directory may be closed behind who is in it", "mkdir a 0755\nmkdir a/b 0777\nas 2003\ncd a/b\nwrite_file f x\nas 0\ncd ..\nchmod . 0700\ncd b\nas 2003\nread_file f\nlistdir ..\nas 0\ncd ../..", in_turns=False)
    yield case("a moved directory must be writable", "chmod . 0777\nmkdir a 0777\nmkdir b 0777\nchmod a 0777\nchmod b 0777\nmkdir a/d 0755\nchown a/d 2001 2001\nas 2002\nrename a/d b/d => !EACCES\nrename a/d a/e => ok\nas 2001\nrename a/e b/e => ok")


@group
def sticky() -> Iterator[Case]:
    calls = ("unlink d/f", "rename d/f d/x", "rename d/f o/f", "rename o/g d/f", "rename d/f d/own EXCHANGE", "link d/f d/x", "rmdir d/e", "rename d/e d/x", "rename o/h d/e", "unlink d/l", "truncate d/f 1")
    for call, user, owner in itertools.product(calls, USERS, (0, 2001, 2002, 2003)):
        yield case(
            f"{call} by {user}, files of {owner}",
            "mkdir d\nmkdir o\nchmod o 0777\nwrite_file d/f text 0666\nmkdir d/e\nwrite_file d/own x\nwrite_file o/g y\nmkdir o/h\nsymlink f d/l\n"
            f"chmod d/f 0666\nlchown d/l {owner} 0\nchown d/f {owner} 0\nchown d/e {owner} 0\nchown d/own 2003 0\nchown d 2001 0\nchmod d 01777\n{USERS[user]}\n{call}\nlistdir d\nlistdir o",
        )
    yield case("own files in a sticky directory of root", "chmod . 01777\nas 2001\nwrite_file f x\nmkdir d\nrename f g\nunlink g\nrmdir d => ok\nwrite_file f x\nas 2002\nunlink f => !EPERM\nrename f g => !EPERM\nwrite_file h y\nrename h f => !EPERM\nlistdir .")


@group
def group_of_new_files() -> Iterator[Case]:
    makes = ("write_file d/n x {0}", "mkdir d/n {0}", "mknod d/n fifo {0}", "symlink x d/n", "open f d/n RDWR|CREAT {0}")
    for make, mode, bits, user in itertools.product(makes, ("0644", "02755", "06755", "02771", "01777"), ("0777", "02777"), USERS):
        yield case(f"{make.format(mode)} in {bits} by {user}", f"umask 0\nmkdir d\nchown d 0 2009\nchmod d {bits}\n{USERS[user]}\n{make.format(mode)}\nlstat d/n mode uid gid")
    yield case("moved ones keep theirs", "mkdir d\nchown d 0 2009\nchmod d 02777\nwrite_file f x\nrename f d/f\nlstat d/f gid\nlink d/f g\nlstat g gid\nmkdir e\nrename e d/e\nlstat d/e gid mode")


@group
def bits_lost_by_writing() -> Iterator[Case]:
    changes = ("append_file n more", "truncate n 1", "truncate n 4", "open f n WRONLY|TRUNC", "open f n WRONLY\nwrite f x", "open f n WRONLY\npwrite f '' 0", "open f n RDWR\nftruncate f 2", "open f n RDWR\nfallocate f 0 0 100", "utimens n 5 6", "utimens_null n", "setxattr n user.a x", "rename n m\nrename m n", "link n m", "read_file n", "open f n RDWR\nmwrite f x 0")
    for change, mode, user in itertools.product(changes, ("04777", "02777", "06777", "02767", "06666", "07777"), ("the owner", "a member", "a stranger", "root")):
        yield case(f"{change!r} on {mode} by {user}", f"write_file n text\nchown n 2001 2005\nchmod n {mode}\nchmod . 0777\n{USERS[user]}\n{change}\nlstat n mode size", in_turns=False)
    for change in ("open f . RDONLY|DIRECTORY\nfchmod f 06755", "write_file d/x y", "mkdir d/e", "utimens_null d"):
        yield case(f"of a directory stay: {change!r}", f"mkdir d\nchmod d 06777\nas 2003\n{change}\nlstat d mode", in_turns=False)


@group
def rights_to_set_times() -> Iterator[Case]:
    for mode, user, call in itertools.product(("0644", "0666", "0444", "0"), USERS, ("utimens n 5 6", "utimens_null n", "utimens n now now", "utimens n omit 6", "utimens n now omit", "utimens n omit omit", "utimens n now 6")):
        yield case(f"{call} on {mode} by {user}", f"write_file n x\nutimens n 1 2\nchown n 2001 2005\nchmod n {mode}\n{USERS[user]}\n{call}\nlstat n atime mtime")
