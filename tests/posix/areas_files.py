"""Cases for open files: how they are opened, reads and writes, their sizes, maps, locks and attributes."""

# ruff: noqa: E501  (a case is a line of a table)

from __future__ import annotations

import itertools
from collections.abc import Iterator

from areas_names import MAKE, made
from tables import Case, case, group

ACCESS = ("RDONLY", "WRONLY", "RDWR")
BIG = 1 << 20


@group
def open_flags() -> Iterator[Case]:
    for access, extra in itertools.product(ACCESS, ("", "CREAT", "CREAT|EXCL", "TRUNC", "CREAT|TRUNC", "APPEND", "CREAT|APPEND", "DIRECTORY", "NOFOLLOW", "CREAT|NOFOLLOW", "EXCL", "SYNC", "CLOEXEC|NOATIME")):
        flags = f"{access}|{extra}".rstrip("|")
        for kind in MAKE:
            if "fifo" in kind or "device" in kind:
                # Opening a fifo may wait, and what a device does is not the file system's.
                continue
            yield case(f"{flags} of a {kind}", f"{made(kind, 'n')}\nopen f n {flags} 0640\nfstat f\nread f 20\nwrite f xy\nfstat f size\npread f 20 0\nclose f")
        yield case(f"{flags} of nothing", f"open f n {flags} 0640\nfstat f\nwrite f xy\nread f 5\npread f 20 0\nclose f\nlstat n")
        yield case(f"{flags} below nothing and below a file", f"open f no/n {flags} 0640\nwrite_file x\nopen f x/n {flags}\nlistdir .")
        yield case(f"{flags} with a slash", f"write_file n text\nopen f n/ {flags}\nclose f\nopen f m/ {flags}\nclose f\nmkdir d\nopen f d/ {flags}\nclose f\nlistdir .")
    for mode, mask in itertools.product(("0666", "0777", "0", "0400", "04755", "02755", "01644"), ("0", "022", "077", "0666")):
        yield case(f"mode {mode} under umask {mask}", f"umask {mask}\nopen f n RDWR|CREAT {mode}\nfstat f\nclose f\nlstat n")
    yield case("a file that may not be written is written by who made it", "chmod . 0777\nas 2001\nopen f n RDWR|CREAT 0444\nwrite f text\nread_file n => text\nclose f\nopen f n RDWR => !EACCES")
    yield case("a file without rights is read by who made it", "chmod . 0777\nas 2001\nopen f n RDWR|CREAT 0\nwrite f text\npread f 9 0 => text\nclose f\nopen f n RDONLY => !EACCES")
    yield case("exclusive twice", "open f n RDWR|CREAT|EXCL\nopen g n RDWR|CREAT|EXCL => !EEXIST\nclose f\nopen g n RDWR|CREAT|EXCL => !EEXIST\nunlink n\nopen g n RDWR|CREAT|EXCL => ok\nclose g")
    yield case("exclusive over links", "symlink n l\nopen f l RDWR|CREAT|EXCL => !EEXIST\nlistdir .\nwrite_file n x\nopen f l RDWR|CREAT|EXCL => !EEXIST\nopen f l RDWR|CREAT => ok\nclose f")
    yield case("truncating what others have open", "write_file n hello\nopen f n RDONLY\nopen g n WRONLY|TRUNC\nfstat f size\nread f 9\nwrite g abc\nread f 9\nclose f\nclose g", in_turns=False)
    yield case("truncating through a link", "write_file n hello\nsymlink n l\nopen f l WRONLY|TRUNC\nclose f\nlstat n size\nlstat l size")
    yield case("a directory", "mkdir d\nopen f d RDONLY => ok\nread f 5 => !EISDIR\npread f 5 0\nwrite f x\nlseek f 0\nfstat f type\nfsync f\nclose f\nopen f d RDWR => !EISDIR\nopen f d RDONLY|CREAT => !EISDIR\nopen f d RDONLY|TRUNC\nopen f d RDONLY|CREAT|DIRECTORY")
    yield case("only a path", "write_file n text\nopen f n PATH\nread f 4 => !EBADF\nfstat f size\nclose f\nsymlink n l\nopen f l PATH|NOFOLLOW\nfstat f type\nclose f\nchmod . 0777\nwrite_file s x 0\nas 2001\nopen f s PATH\nfstat f mode\nclose f")
    yield case("without a name", "open f . RDWR|TMPFILE 0640 # or EOPNOTSUPP\nwrite f text\nfstat f nlink size mode\nlistdir .\nflink f n\nfstat f nlink\nclose f\nread_file n\nlstat n", in_turns=False)
    yield case("without a name, for ever", "open f . RDWR|TMPFILE|EXCL 0640 # or EOPNOTSUPP\nwrite f text\nflink f n => !ENOENT\nclose f\nlistdir .", in_turns=False)
    yield case("direct", "open f n RDWR|CREAT|DIRECT # or EINVAL\nclose f")
    yield case("flags that fcntl shows and sets", "open f n RDWR|CREAT\nsetfl f NONBLOCK\ngetfl f APPEND NONBLOCK\nwrite f abc\nlseek f 0\nwrite f X\npread f 9 0 => Xbc\nsetfl f APPEND\ngetfl f APPEND RDWR WRONLY NONBLOCK SYNC\nlseek f 0\nwrite f Y\npread f 9 0 => XbcY\nclose f", in_turns=False)
    # The kernel opens the file below a passed-through one with the flags of the first open, and goes by these.
    yield case("appending is ended by fcntl", "open f n RDWR|CREAT|APPEND\ngetfl f APPEND\nwrite f abc\nsetfl f 0\ngetfl f APPEND\nlseek f 0\nwrite f X\npread f 9 0 => Xbc # or =abcX", in_turns=False)
    yield case("with both or neither access", "open f n 3\nwrite_file n\nopen f n 3\nread f 4\nclose f")
    yield case("many at once", "\n".join(f"open f{n} n{n % 7} RDWR|CREAT\nwrite f{n} x{n}" for n in range(60)) + "\n" + "\n".join(f"close f{n}" for n in range(60)), in_turns=False)
    yield case("one that cannot be made leaves no file", "mkdir d\nchmod d 0555\nas 2001\nopen f d/n RDWR|CREAT => !EACCES\nlistdir d")


@group
def programs() -> Iterator[Case]:
    yield case("run from the tree", "copy_in /bin/true t 0755\nexec ./t => 0\ncopy_in /bin/false f 0755\nexec ./f => 1\nchmod t 0644\nexec ./t => !EACCES\nwrite_file s text 0755\nexec ./s => !ENOEXEC\nexec ./no => !ENOENT\nmkdir d\nexec ./d => !EACCES")
    yield case("a script", "copy_in /usr/bin/which s 0755\nexec ./s sh => 0\nexec ./s no-such-program-at-all => 1")
    yield case("an ordinary user needs the right to execute", "copy_in /bin/true t 0700\nas 2001\nexec ./t => !EACCES\nas 0\nchmod t 0711\nas 2001\nexec ./t")
    yield case("open for writing", "copy_in /bin/true t 0755\nopen f t WRONLY\nexec ./t => !ETXTBSY\nclose f\nexec ./t => 0", in_turns=False)
    yield case("written while it runs", "copy_in /bin/sleep t 0755\nwrite_while_running ./t WRONLY => !ETXTBSY\nwrite_while_running ./t RDWR => !ETXTBSY\nwrite_while_running ./t RDONLY => ok\nexec ./t 0", in_turns=False)
    yield case("truncated while it runs", "copy_in /bin/sleep t 0755\nwrite_while_running ./t WRONLY|TRUNC => !ETXTBSY\nexec ./t 0 => 0", in_turns=False)
    yield case("replaced", "copy_in /bin/true t 0755\nexec ./t => 0\ncopy_in /bin/false u 0755\nrename u t\nexec ./t => 1")
    yield case("written anew under its name", "copy_in /bin/true t 0755\nexec ./t => 0\nunlink t\ncopy_in /bin/false t 0755\nexec ./t => 1")


SIZES = (0, 1, 5, 4095, 4096, 4097, 131072, 524287, 524288, 524289, BIG + 3)


@group
def truncate() -> Iterator[Case]:
    for size, new in itertools.product(SIZES, SIZES):
        text = f"'<b*{size}>'" if size else "''"
        # To the same size: whether the times move is anybody's choice.
        times = "mtime" if size != new else "utimens n 5 6"
        yield case(f"from {size} to {new}", f"write_file n {text}\nutimens n 5 6\ntruncate n {new}\nlstat n size {times}\nread_file n\ntruncate n {size}\nread_file n\nutimens n 7 8".replace("size utimens", "size\nutimens"))
    for size in SIZES:
        yield case(f"to the size that it has: {size}", f"write_file n '<b*{size}>'\nutimens n 5 6\ntruncate n {size}\nlstat n mtime size\nopen f n RDWR\nutimens n 5 6\ntruncate n {size}\nlstat n mtime\nutimens n 5 6\nftruncate f {size}\nlstat n mtime\nclose f\nlstat n mtime")
        yield case(f"of a hole to the size that it has: {size}", f"mknod n reg\ntruncate n {size}\nutimens n 5 6\ntruncate n {size}\nlstat n mtime\nopen f n RDWR\ntruncate n {size}\nlstat n mtime\nclose f\nlstat n mtime")
    for size, new in itertools.product(SIZES[::2], SIZES[1::2]):
        yield case(f"open, from {size} to {new}", f"open f n RDWR|CREAT\npwrite f '<b*{size}>' 0\nftruncate f {new}\nfstat f size\npread f {BIG * 2} 0\nwrite f end\npread f {BIG * 2} 0\nftruncate f 3\nftruncate f {new}\npread f {BIG * 2} 0\nclose f\nread_file n", in_turns=False)
    for kind in MAKE:
        # A mount may be without devices (nodev).
        yield case(f"of a {kind}", f"{made(kind, 'n')}\ntruncate n 2\nlstat n\n{'' if 'device' in kind else 'read_file n'}\ntruncate n/ 2")
    yield case("errors", "truncate no 1 => !ENOENT\nwrite_file f abc\ntruncate f/x 1 => !ENOTDIR\ntruncate f -1 => !EINVAL\nmkdir d\ntruncate d 0 => !EISDIR\nread_file f")
    yield case("of a file opened for reading only", "write_file n abc\nopen f n RDONLY\nftruncate f 1 => !EINVAL\nclose f\nread_file n => abc")
    yield case("without the right", "write_file n abc 0644\nas 2001\ntruncate n 1 => !EACCES\nas 0\nchmod n 0666\nas 2001\ntruncate n 1\nread_file n => a")
    yield case("needs no right once open", "chmod . 0777\nas 2001\nopen f n RDWR|CREAT 0644\nwrite f hello\nfchmod f 0\nftruncate f 2\nclose f\nas 0\nread_file n => he")
    yield case("very large", f"write_file n x\ntruncate n {1 << 40}\nlstat n size some_blocks\nopen f n RDWR\npread f 10 {1 << 39}\npwrite f y {(1 << 40) - 1}\nfstat f size\nftruncate f 3\nclose f\nread_file n")
    yield case("the largest and beyond", f"write_file n x\ntruncate n {(1 << 63) - 1}\ntruncate n {(1 << 63) - 4096}\nlstat n size\ntruncate n 2\nread_file n")
    yield case("of a name of several", "write_file a abcdef\nlink a b\ntruncate a 3\nread_file b => abc\ntruncate b 4\nlstat a size")
    yield case("by opening", "write_file n abcdef\nlink n m\nopen f n WRONLY|TRUNC\nlstat m size\nclose f\nread_file m\nlstat n nlink", in_turns=False)


@group
def reading_and_writing() -> Iterator[Case]:
    for size in SIZES:
        text = f"'<q*{size}>'" if size else "''"
        yield case(f"{size} bytes", f"open f n RDWR|CREAT\nwrite f {text} => {size}\nlseek f 0\nread f {size + 10}\nread f 1\nfstat f size\nclose f\nread_file n\nlstat n size some_blocks", in_turns=False)
        yield case(f"{size} bytes appended", f"write_file n {text}\nappend_file n end\nread_file n\nappend_file n {text}\nread_file n")
        yield case(f"a hole of {size}", f"open f n RDWR|CREAT\npwrite f end {size}\npread f {size + 3} 0\nfstat f size\nclose f\nread_file n")
        yield case(f"rewritten, {size} bytes", f"write_file n {text}\nwrite_file n other\nread_file n => other\nwrite_file n {text}\nread_file n\nwrite_file n ''\nlstat n size")
        yield case(f"overwritten in the middle, {size} bytes", f"write_file n {text}\nopen f n RDWR\npwrite f MIDDLE {size // 2}\npread f {2 * BIG} 0\nclose f\nread_file n", in_turns=False)
    yield case("at places one after the other", "open f n RDWR|CREAT\nwrite f abc\nwrite f def\nlseek f 1\nread f 2 => bc\nwrite f XY\nlseek f 0 SEEK_CUR => 5\nlseek f -1 SEEK_END => 5\nread f 5 => f\nread f 5\nlseek f 10\nwrite f z\npread f 20 0\nlseek f -100 SEEK_CUR => !EINVAL\nclose f", in_turns=False)
    yield case("appended by two", "open f n WRONLY|CREAT|APPEND\nopen g n WRONLY|APPEND\nwrite f one\nwrite g two\nwrite f three\npwrite f X 0\nlseek f 0 SEEK_CUR\nfstat g size\nclose f\nclose g\nread_file n", in_turns=False)
    yield case("appended by two processes", "open f n WRONLY|CREAT|APPEND\np1 open g n WRONLY|APPEND\nwrite f one\np1 write g two\nwrite f three\np1 write g four\np1 close g\nclose f\nread_file n => onetwothreefour", in_turns=False)
    yield case("a place is shared by what was forked", "open f n RDWR|CREAT\nwrite f abcdef\nlseek f 0\np1 read f 2 => ab\nread f 2 => cd\np1 write f Z\npread f 9 0 => abcdZf\np1 close f\nread f 9 => f\nclose f", in_turns=False)
    yield case("a place is shared by copies", "open f n RDWR|CREAT\ndup f g\nwrite f abc\nwrite g def\nlseek f 0\nread g 9 => abcdef\nclose f\nlseek g 1\nread g 2 => bc\nclose g", in_turns=False)
    yield case("several buffers", "open f n RDWR|CREAT\nwritev f abc '' defgh => 8\nlseek f 0\nreadv f 2 3 10\nclose f", in_turns=False)
    yield case("with RWF_APPEND", "open f n RDWR|CREAT\nwrite f abc\npwrite_appending f def 0\npread f 9 0 => abcdef\nlseek f 0 SEEK_CUR\nclose f", in_turns=False)
    yield case("against the mode", "write_file n abc\nopen f n RDONLY\nwrite f x => !EBADF\npwrite f x 0 => !EBADF\nclose f\nopen f n WRONLY\nread f 1 => !EBADF\npread f 1 0 => !EBADF\nclose f\nread_file n => abc")
    yield case("nothing", "open f n RDWR|CREAT\nwrite f '' => 0\npwrite f '' 100 => 0\nfstat f size\nread f 0\nclose f", in_turns=False)
    yield case("negative places", "open f n RDWR|CREAT\npread f 1 -1 => !EINVAL\npwrite f x -1 => !EINVAL\nlseek f -1 => !EINVAL\nclose f", in_turns=False)
    yield case("beyond the largest", f"open f n RDWR|CREAT\nlseek f {(1 << 63) - 1}\npwrite f x {(1 << 63) - 1} => !EINVAL\npread f 5 {(1 << 63) - 10}\nwrite f x\nfstat f size\nclose f", in_turns=False)
    yield case("beyond what the process may", "limit_fsize 10\nopen f n RDWR|CREAT\nwrite f 12345678 => 8\nwrite f 12345678 => 2\nwrite f x => !EFBIG\npwrite f x 100 => !EFBIG\nftruncate f 11 => !EFBIG\nfstat f size\ntruncate n 9\nclose f\ntruncate n 30 => !EFBIG", in_turns=False)
    yield case("written through one, read through the other at once", "open f n WRONLY|CREAT\nopen g n RDONLY\nwrite f abc\nread g 9 => abc\nwrite f def\nread g 9 => def\nfstat g size\npwrite f X 0\npread g 9 0 => Xbcdef\nclose f\nclose g", in_turns=False)
    yield case("seen by stat at once", "open f n WRONLY|CREAT\nlstat n size\nwrite f abc\nlstat n size\nwrite f '<d*100000>'\nlstat n size\nftruncate f 5\nlstat n size\nclose f\nlstat n size", in_turns=False)
    yield case("synced", "open f n RDWR|CREAT\nwrite f abc\nfsync f => ok\nfdatasync f => ok\nclose f\nopen f . RDONLY|DIRECTORY\nfsync f => ok\nclose f", in_turns=False)
    yield case("holes found", f"open f n RDWR|CREAT\npwrite f data {4 * BIG}\nlseek f 0 SEEK_HOLE => 0\nlseek f {4 * BIG} SEEK_DATA => {4 * BIG}\nlseek f {4 * BIG} SEEK_HOLE => {4 * BIG + 4}\nlseek f {4 * BIG + 4} SEEK_DATA => !ENXIO\nlseek f {5 * BIG} SEEK_HOLE => !ENXIO\nclose f", in_turns=False)
    yield case("data found in a file full of it", f"write_file n '<x*{BIG}>'\nopen f n RDONLY\nlseek f 0 SEEK_DATA => 0\nlseek f 0 SEEK_HOLE => {BIG}\nlseek f 77 SEEK_DATA => 77\nlseek f {BIG} SEEK_DATA => !ENXIO\nclose f")
    yield case("copied in the kernel", f"write_file a '<c*{BIG + 5}>'\nopen f a RDONLY\nopen g b RDWR|CREAT\ncopy_range f g {2 * BIG} => {BIG + 5}\nfstat g size\nclose g\nclose f\nread_file b")
    yield case("copied in the kernel, a piece", "write_file a 0123456789\nwrite_file b abcdefghij\nopen f a RDONLY\nopen g b RDWR\ncopy_range f g 3 2 5 => 3\npread g 20 0 => abcde234ij\ncopy_range f g 5 20 0\ncopy_range g f 1 => !EBADF\nclose g\nclose f", in_turns=False)
    yield case("copied in the kernel, within a file", "write_file a 0123456789\nopen f a RDWR\ncopy_range f f 3 0 7 => 3\npread f 20 0 => 0123456012\ncopy_range f f 5 0 3 => !EINVAL\nclose f", in_turns=False)
    yield case("sent in the kernel", f"write_file a '<s*{BIG // 2}>'\nopen f a RDONLY\nopen g b WRONLY|CREAT\nsendfile f g {BIG // 2} 10\nclose f\nclose g\nread_file b")


@group
def space() -> Iterator[Case]:
    modes = ("0", "KEEP_SIZE", "PUNCH_HOLE|KEEP_SIZE", "ZERO_RANGE", "ZERO_RANGE|KEEP_SIZE", "PUNCH_HOLE", "COLLAPSE_RANGE", "INSERT_RANGE", "128")
    for mode, (offset, size) in itertools.product(modes, ((0, 4096), (4096, 8192), (1000, 5000), (9000, 9000), (20000, 100), (500000, 50000))):
        text = f"write_file n '<v*20000>'\nopen f n RDWR\nfallocate f {mode} {offset} {size} # or EOPNOTSUPP\nfstat f size\npread f 600000 0\nclose f\nread_file n\nlstat n mtime"
        # Reserving space and punching holes everybody does; the others tmpfs refuses, and so may we.
        yield case(f"{mode} of {size} at {offset}", text if "RANGE" in mode else text.replace(" # or EOPNOTSUPP", ""), in_turns=False)
    yield case("errors", "write_file n abc\nopen f n RDWR\nfallocate f 0 0 0 => !EINVAL\nfallocate f 0 -1 5 => !EINVAL\nfallocate f 0 0 -1 => !EINVAL\nclose f\nopen f n RDONLY\nfallocate f 0 0 5 => !EBADF\nclose f\nread_file n", in_turns=False)
    yield case("what statvfs says", "statvfs . namemax\nwrite_file n x\nstatvfs n namemax\nstatvfs no => !ENOENT")


@group
def maps() -> Iterator[Case]:
    for size in (1, 4096, 5000, 524288 + 7, BIG):
        yield case(f"read, {size} bytes", f"write_file n '<m*{size}>'\nopen f n RDONLY\nmread f {size} 0\nmread f {size} 0 private\nmread f 1 {size - 1}\nclose f")
        yield case(f"written, {size} bytes", f"write_file n '<m*{size}>'\nopen f n RDWR\nmwrite f Q {size - 1}\npread f 1 {size - 1} => Q\nmwrite f P 0\nmread f 1 0 => P\nclose f\nread_file n", in_turns=False)
        yield case(f"written privately, {size} bytes", f"write_file n '<m*{size}>'\nopen f n RDONLY\nmwrite f Q 0 private\npread f 1 0 => m\nclose f\nread_file n")
    yield case("needs the right", "write_file n abc\nopen f n RDONLY\nmwrite f x 0 => !EACCES\nclose f\nopen f n WRONLY\nmread f 1 0 => !EACCES\nclose f")
    yield case("sees what is written", "write_file n '<a*5000>'\nopen f n RDWR\nmread f 3 0\npwrite f XYZ 0\nmread f 3 0 => XYZ\npwrite f END 5000\nmread f 3 5000 => END\nclose f", in_turns=False)
    yield case("what it writes is seen by all", "write_file n '<a*9000>'\nopen f n RDWR\nopen g n RDONLY\nmwrite f HELLO 4094\npread g 5 4094 => HELLO\np1 pread g 5 4094 => HELLO\nclose f\nclose g\nread_file n", in_turns=False)
    yield case("after truncation", "write_file n '<a*9000>'\nopen f n RDWR\nmread f 5 8000\nftruncate f 10\nftruncate f 9000\nmread f 5 8000\nmread f 10 5\nmwrite f Z 8999\nclose f\nread_file n", in_turns=False)
    yield case("beyond the end", "write_file n abc\nopen f n RDONLY\nmbeyond f 2 0 => a\nmbeyond f 2 3\nmbeyond f 2 4095\nmbeyond f 2 4096 => !SIGBUS\nclose f")
    yield case("of a file without a name", "open f n RDWR|CREAT\nwrite f '<a*5000>'\nunlink n\nmwrite f XY 4999\npread f 9 4990\nclose f".replace("XY", "X"), in_turns=False)
    yield case("a map that was written grows with the file", "write_file n '<a*4096>'\nopen f n RDWR\nmwrite f b 4095\nftruncate f 8192\nmwrite f c 8191\npread f 2 4095\nclose f\nread_file n", in_turns=False)
    yield case("moves the time", "write_file n '<a*100>'\nutimens n 5 6\nopen f n RDWR\nmwrite f b 0\nclose f\nlstat n mtime", in_turns=False)


@group
def attributes() -> Iterator[Case]:
    for kind in MAKE:
        yield case(f"of a {kind}", f"{made(kind, 'n')}\nsetxattr n user.one value\ngetxattr n user.one\nlistxattr n\nremovexattr n user.one\nlistxattr n\nsetxattr n trusted.two x\nlistxattr n")
    yield case("made, replaced, removed", "write_file n\ngetxattr n user.a => !ENODATA\nsetxattr n user.a one CREATE\nsetxattr n user.a two CREATE => !EEXIST\nsetxattr n user.a two REPLACE\nsetxattr n user.b x REPLACE => !ENODATA\ngetxattr n user.a => two\nremovexattr n user.a\nremovexattr n user.a => !ENODATA\nlistxattr n")
    yield case("empty and binary", "write_file n\nsetxattr n user.empty ''\ngetxattr n user.empty\nsetxattr n user.bin 'é\xff\x01'\ngetxattr n user.bin\nlistxattr n")
    yield case("names", "write_file n\nsetxattr n user.<x*250> v\nlistxattr n\nsetxattr n user.<x*251> v\nsetxattr n user. v\nsetxattr n plain v => !EOPNOTSUPP\nsetxattr n '' v\nsetxattr n other.a v => !EOPNOTSUPP\nsetxattr n user.é v\nlistxattr n")
    for size in (1000, 4096, 60000):
        yield case(f"{size} bytes", f"write_file n\nsetxattr n user.a '<x*{size}>'\ngetxattr n user.a")
    yield case("65,537 bytes", "write_file n\nsetxattr n user.a '<x*65537>' => !E2BIG")
    yield case("many", "write_file n\n" + "\n".join(f"setxattr n user.a{n} v{n}" for n in range(50)) + "\nlistxattr n\ngetxattr n user.a33")
    yield case("go with the file", "write_file n\nsetxattr n user.a one\nlink n m\nrename n o\ngetxattr m user.a => one\ngetxattr o user.a => one\nsetxattr m user.b two\nlistxattr o\nappend_file o x\ntruncate o 0\nchmod o 0600\nlistxattr m\nwrite_file o new\nlistxattr o")
    yield case("do not stay with the name", "write_file n\nsetxattr n user.a one\nunlink n\nwrite_file n\nlistxattr n => []\nsetxattr n user.b x\nwrite_file m\nrename m n\nlistxattr n => []")
    yield case("rights", "write_file n x 0644\nsetxattr n user.a one\nsetxattr n trusted.b two\nas 2001\ngetxattr n user.a => one\nsetxattr n user.a two => !EACCES\nremovexattr n user.a => !EACCES\nlistxattr n\ngetxattr n trusted.b\nsetxattr n trusted.c x => !EPERM\nas 0\nchmod n 0600\nas 2001\ngetxattr n user.a => !EACCES\nlistxattr n")
    yield case("rights in a sticky directory", "mkdir d 01777\nas 2001\nsetxattr d user.a x => !EPERM\nas 0\nsetxattr d user.a x")
    yield case("by descriptor", "open f n RDWR|CREAT\nfsetxattr f user.a one\nfgetxattr f user.a => one\ngetxattr n user.a => one\nunlink n\nfgetxattr f user.a => one\nfsetxattr f user.b two\nfgetxattr f user.b => two\nclose f", in_turns=False)
    yield case("of nothing", "getxattr no user.a => !ENOENT\nsetxattr no user.a x => !ENOENT\nlistxattr no => !ENOENT\nremovexattr no user.a => !ENOENT")


@group
def locks() -> Iterator[Case]:
    """Those of one node; whether nodes see each other's is for another suite."""
    yield case("flock, shared and exclusive", "open f n RDWR|CREAT\np1 open g n RDWR\nflock f SH|NB\np1 flock g SH|NB => ok\nflock f EX|NB => !EAGAIN\np1 flock g UN\nflock f EX|NB => ok\np1 flock g SH|NB => !EAGAIN\nflock f UN\np1 flock g EX|NB => ok\np1 close g\nflock f EX|NB => ok\nclose f", in_turns=False)
    yield case("flock waits", "open f n RDWR|CREAT\np1 open g n RDWR\nflock f EX\np1& flock g EX\nsleep 0.05\nflock f UN\np1 wait\np1 close g\nclose f", in_turns=False)
    yield case("flock goes with the process", "p1 open g n RDWR|CREAT\np1 flock g EX|NB\nopen f n RDWR\nflock f EX|NB => !EAGAIN\np1 close g\nflock f EX|NB => ok\nclose f", in_turns=False)
    yield case("flock of two descriptors of one process", "open f n RDWR|CREAT\nopen g n RDWR\nflock f EX|NB\nflock g EX|NB => !EAGAIN\ndup f h\nflock h EX|NB => ok\nclose f\nflock g EX|NB => !EAGAIN\nclose h\nflock g EX|NB => ok\nclose g", in_turns=False)
    yield case("flock of a directory", "mkdir d\nopen f d RDONLY\nopen g d RDONLY\nflock f EX|NB => ok\nflock g SH|NB => !EAGAIN\nclose f\nflock g SH|NB => ok\nclose g", in_turns=False)
    yield case("ranges", "open f n RDWR|CREAT\nwrite f 0123456789\np1 open g n RDWR\nlock f SETLK WRLCK 0 5 => None\np1 lock g SETLK WRLCK 5 5\np1 lock g SETLK WRLCK 4 2 => !EAGAIN\np1 lock g GETLK WRLCK 0 0\nlock f GETLK RDLCK 0 0\nlock f SETLK WRLCK 0 0 => !EAGAIN\nlock f SETLK UNLCK 0 3\np1 lock g SETLK RDLCK 0 3\np1 lock g GETLK WRLCK 0 10\nlock f SETLK RDLCK 0 3\nclose f\np1 lock g SETLK WRLCK 0 0\np1 close g".replace(" => None", ""), in_turns=False)
    yield case("ranges wait", "open f n RDWR|CREAT\np1 open g n RDWR\nlock f SETLK WRLCK 0 5\np1& lock g SETLKW WRLCK 0 5\nsleep 0.05\nlock f SETLK UNLCK 0 5\np1 wait\nlock f SETLK WRLCK 0 5 => !EAGAIN\np1 close g\nclose f", in_turns=False)
    yield case("any close lets go of ranges", "open f n RDWR|CREAT\nopen h n RDONLY\np1 open g n RDWR\nlock f SETLK WRLCK 0 5\nclose h\np1 lock g SETLK WRLCK 0 5 => ok\np1 close g\nclose f", in_turns=False)
    yield case("ranges of open files", "open f n RDWR|CREAT\nopen g n RDWR\nlock f OFD_SETLK WRLCK 0 5\nlock g OFD_SETLK WRLCK 0 5 => !EAGAIN\nlock g OFD_GETLK WRLCK 0 5\nclose f\nlock g OFD_SETLK WRLCK 0 5 => ok\nclose g", in_turns=False)
    yield case("need the mode", "write_file n x\nopen f n RDONLY\nlock f SETLK WRLCK 0 5 => !EBADF\nlock f SETLK RDLCK 0 5\nclose f\nopen f n WRONLY\nlock f SETLK RDLCK 0 5 => !EBADF\nclose f", in_turns=False)
    yield case("of a file without a name", "open f n RDWR|CREAT\nopen g n RDWR\nunlink n\nflock f EX|NB\nflock g EX|NB => !EAGAIN\nclose f\nclose g", in_turns=False)
