"""Cases for times: how they are set, and which call moves which time of which file."""

# ruff: noqa: E501  (a case is a line of a table)

from __future__ import annotations

import itertools
from collections.abc import Iterator

from areas_names import MAKE, made
from tables import Case, case, group


@group
def utimens() -> Iterator[Case]:
    values = ("0", "1.000000001", "999999999.999999999", "1000000000.123456789", "-1", "-5.5", "-2147483648", "2147483647", "2147483648", "4294967296.5", "now", "omit")
    for atime, mtime in itertools.product(values, values):
        yield case(f"{atime} {mtime}", f"write_file n x\nutimens n 3.3 4.4\nutimens n {atime} {mtime}\nlstat n atime mtime")
    for kind in MAKE:
        yield case(f"of a {kind}", f"{made(kind, 'n')}\nutimens n 5.5 6.6\nstat n atime mtime\nlstat n mtime\nutimens n 7.7 8.8 nofollow\nlstat n atime mtime\nutimens_null n\nutimens n omit omit nofollow\nlstat n mtime")
    yield case("errors", "utimens no 1 1 => !ENOENT\nwrite_file f\nutimens f/x 1 1 => !ENOTDIR\nutimens no omit omit\nutimens f 1.999999999 1\nlstat f atime\nsymlink a b\nsymlink b a\nutimens a 1 1 => !ELOOP")
    yield case("by descriptor", "open f n RDWR|CREAT\nwrite f x\nfutimens f 5.000000005 6.000000006\nfstat f atime mtime\nlstat n mtime\nwrite f y\nfstat f mtime\nfutimens f omit 7\nclose f\nlstat n mtime", in_turns=False)
    yield case("set while open, kept at close", "open f n RDWR|CREAT\nwrite f x\nutimens n 5 6\nclose f\nlstat n mtime size", in_turns=False)
    yield case("kept by what does not write", "write_file n text\nutimens n 5.5 6.6\nchmod n 0600\nchown n 1 2\nlink n m\nrename n o\nsetxattr o user.a b\nlstat o mtime atime\nopen f o RDWR\nclose f\nopen f o RDONLY\nfsync f\nclose f\nlstat m mtime")
    yield case("read does not move the time of change", "write_file n text\nutimens n 5.5 6.6\nread_file n\nlstat n mtime")
    yield case("now is now", "write_file n x\nfresh_times n\nutimens n 5 5\nutimens_null n\nfresh_times n\nutimens n now now\nfresh_times n\nmkdir d\nfresh_times d\nsymlink x l\nfresh_times l\nmknod p fifo\nfresh_times p")
    yield case("of a file with names", "write_file a\nlink a b\nutimens b 5.1 6.1\nlstat a mtime\nunlink b\nlstat a mtime")
    yield case("of directories survive what is done to their children", "mkdir d\nwrite_file d/f x\nutimens d 5 6\nappend_file d/f y\nchmod d/f 0600\nutimens d/f 1 1\nlstat d mtime\nunlink d/f\nlstat d mtime")


#: A call, the paths to look at, and the calls to make first. tmpfs says which times of these move.
CALLS: list[tuple[str, str, str]] = [
    ("write_file d/n x", ".,d", "mkdir d"),
    ("write_file d/n x", "d,d/n", "mkdir d\nwrite_file d/n old"),
    ("write_file d/n ''", "d,d/n", "mkdir d\nwrite_file d/n ''"),
    ("append_file d/n x", "d,d/n", "mkdir d\nwrite_file d/n old"),
    ("append_file d/n ''", "d,d/n", "mkdir d\nwrite_file d/n old"),
    ("read_file d/n", "d,d/n", "mkdir d\nwrite_file d/n old"),
    ("listdir d", ".,d", "mkdir d\nwrite_file d/n old"),
    ("open f d/n RDWR", "d,d/n", "mkdir d\nwrite_file d/n old"),
    ("open f d/n RDWR|CREAT", "d,d/n", "mkdir d\nwrite_file d/n old"),
    ("open f d/n RDWR|TRUNC", "d,d/n", "mkdir d\nwrite_file d/n ''"),
    ("open f d/n RDWR|TRUNC", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("mkdir d/n", ".,d", "mkdir d"),
    ("mkdir d/n", "d,d/n", "mkdir d\nmkdir d/n"),
    ("mknod d/n fifo", ".,d", "mkdir d"),
    ("symlink x d/n", ".,d", "mkdir d"),
    ("bind d/n", ".,d", "mkdir d"),
    ("rmdir d/n", ".,d", "mkdir d\nmkdir d/n"),
    ("rmdir d", ".,d,d/n", "mkdir d\nmkdir d/n"),
    ("unlink d/n", ".,d", "mkdir d\nwrite_file d/n x"),
    ("unlink d/n", "d,m", "mkdir d\nwrite_file d/n x\nlink d/n m"),
    ("unlink d/n", "d,m", "mkdir d\nwrite_file m x\nsymlink ../m d/n"),
    ("unlink d/no", ".,d", "mkdir d"),
    ("link m d/n", ".,d,m", "mkdir d\nwrite_file m x"),
    ("link m d/n", ".,d,m,d/n", "mkdir d\nwrite_file m x\nwrite_file d/n y"),
    ("rename d/n d/m", ".,d", "mkdir d\nwrite_file d/n x"),
    ("rename d/n e/n", ".,d,e", "mkdir d\nmkdir e\nwrite_file d/n x"),
    ("rename d/n e/n", ".,d,e", "mkdir d\nmkdir e\nmkdir d/n"),
    ("rename d/n e/n", "d,e,m", "mkdir d\nmkdir e\nwrite_file d/n x\nlink d/n m"),
    ("rename d/n e/n", "d,e,m", "mkdir d\nmkdir e\nwrite_file d/n x\nwrite_file e/n y\nlink e/n m"),
    ("rename d/n e/n", "d,e", "mkdir d\nmkdir e\nmkdir d/n\nmkdir e/n"),
    ("rename d/n d/n", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("rename d/n d/m", "d,d/n,d/m", "mkdir d\nwrite_file d/n x\nlink d/n d/m"),
    ("rename d/n e/m EXCHANGE", "d,e,d/n,e/m", "mkdir d\nmkdir e\nwrite_file d/n x\nwrite_file e/m y"),
    ("rename d/n e/m EXCHANGE", "d,e,d/n,e/m", "mkdir d\nmkdir e\nmkdir d/n\nwrite_file e/m y"),
    ("rename d/n e/m NOREPLACE", "d,e,d/n,e/m", "mkdir d\nmkdir e\nwrite_file d/n x\nwrite_file e/m y"),
    ("chmod d/n 0600", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("chmod d/n 0644", "d,d/n", "mkdir d\nwrite_file d/n x 0644"),
    ("chmod d 0700", ".,d,d/n", "mkdir d\nwrite_file d/n x"),
    ("chown d/n 1 2", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("chown d/n -1 -1", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("lchown d/n 1 2", "d,d/n", "mkdir d\nsymlink x d/n"),
    ("truncate d/n 5", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("truncate d/n 0", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("utimens d/n 1 2", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("utimens d/n omit omit", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("utimens d/n omit now", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("utimens d/n now omit", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("setxattr d/n user.a x", "d,d/n", "mkdir d\nwrite_file d/n x"),
    ("removexattr d/n user.a", "d,d/n", "mkdir d\nwrite_file d/n x\nsetxattr d/n user.a x"),
    ("getxattr d/n user.a", "d,d/n", "mkdir d\nwrite_file d/n x\nsetxattr d/n user.a x"),
    ("readlink d/n", "d,d/n", "mkdir d\nsymlink x d/n"),
    ("access d/n R_OK", "d,d/n", "mkdir d\nwrite_file d/n x"),
]

#: The same for open files: a call on ``f``, which is ``n`` with 10 bytes in it.
OPEN_CALLS = (
    "write f x", "write f ''", "pwrite f x 100", "read f 5", "pread f 5 0", "ftruncate f 3", "ftruncate f 10", "ftruncate f 20", "fchmod f 0600", "fchown f 1 2",
    "futimens f 1 2", "fsync f", "fallocate f 0 0 100", "fallocate f KEEP_SIZE 0 100", "fallocate f PUNCH_HOLE|KEEP_SIZE 0 5", "lseek f 5", "fsetxattr f user.a b",
    "flink f m", "rename n m", "link n m", "close f", "writev f abc def", "setfl f APPEND", "flock f SH", "getfl f APPEND", "mread f 3 0", "copy_range f f 2 0 7",
)  # fmt: skip


@group
def moved_times() -> Iterator[Case]:
    for call, watched, before in CALLS:
        yield case(f"{call} ({before!r})", f"{before}\nchanging {watched} {call}")


@group
def moved_times_of_open_files() -> Iterator[Case]:
    for call in OPEN_CALLS:
        yield case(call, f"write_file n 0123456789\nopen f n RDWR\nchanging .,n {call}", in_turns=False)
        yield case(f"{call}, then looked at", f"write_file n 0123456789\nutimens n 5 6\nopen f n RDWR\n{call}\nfstat f mtime\nlstat n mtime", in_turns=False)
    for call in ("write f x", "ftruncate f 3", "fchmod f 0600", "close f"):
        yield case(f"{call} of a file without a name", f"write_file n 0123456789\nopen f n RDWR\nunlink n\nchanging . {call}\nfstat f", in_turns=False)
    yield case("written, then closed: the time is of the write", "open f n RDWR|CREAT\nwrite f x\nchanging n close f", in_turns=False)
    yield case("mapped and written", "write_file n 0123456789\nopen f n RDWR\nutimens n 5 6\nmwrite f X 0\nclose f\nlstat n mtime\nread_file n", in_turns=False)
