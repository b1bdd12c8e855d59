"""Cases for names: making, linking, renaming and removing what has them."""

# ruff: noqa: E501  (a case is a line of a table)

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tables import Case, case, group

#: How to make one of each kind, called ``{0}``.
MAKE = {
    "file": "write_file {0} some",
    "empty file": "write_file {0}",
    "directory": "mkdir {0} 0755",
    "full directory": "mkdir {0} 0755\nwrite_file {0}/in x",
    "link to file": "write_file aim text\nsymlink aim {0}",
    "link to directory": "mkdir aim.d 0755\nsymlink aim.d {0}",
    "dangling link": "symlink nowhere {0}",
    "fifo": "mknod {0} fifo 0640",
    "socket": "bind {0}",
    "character device": "mknod {0} chr 0600 1 3",
    "block device": "mknod {0} blk 0600 7 200",
}
LONG = "<n*255>"
TOO_LONG = "<n*256>"


def made(kind: str, name: str) -> str:
    return MAKE[kind].format(name)


@group
def mkdir() -> Iterator[Case]:
    for mode, mask in itertools.product(("0777", "0700", "0", "01777", "02755", "04711", "0111"), ("0", "022", "077", "0777")):
        yield case(f"mode {mode} under umask {mask}", f"umask {mask}\nmkdir d {mode}\nlstat d")
    for kind in MAKE:
        yield case(f"over a {kind}", f"{made(kind, 'd')}\nmkdir d 0755 => !EEXIST")
    yield case("below nothing", "mkdir no/d => !ENOENT")
    yield case("below a file", "write_file f x\nmkdir f/d => !ENOTDIR")
    yield case("empty name", "mkdir '' => !ENOENT")
    yield case("dots and slashes", "mkdir . => !EEXIST\nmkdir .. => !EEXIST\nmkdir d/ => ok\nmkdir ./d/../e => ok\nmkdir d/.. => !EEXIST\nmkdir d/. => !EEXIST")
    yield case("trailing slash through a dangling link", "symlink no l\nmkdir l/\nmkdir l\nlstat l type")
    yield case("counts links of the parent", "mkdir a\nlstat . nlink\nmkdir a/b\nmkdir a/c\nlstat a nlink\nwrite_file a/f\nlstat a nlink\nrmdir a/b\nlstat a nlink")
    yield case("group of a directory that gives its own", "chown . 0 2005\nchmod . 02775\nmkdir d 0700\nlstat d mode gid\nwrite_file f\nlstat f mode gid\nmkdir d/e 0755\nlstat d/e mode gid\nmknod p fifo\nlstat p gid\nsymlink x s\nlstat s gid")
    yield case("through a link to a directory", "mkdir a\nsymlink a l\nmkdir l/b\nlstat a/b type\nlistdir l")
    yield case("through a link that leads in a circle", "symlink b a\nsymlink a b\nmkdir a/d => !ELOOP")


@group
def rmdir() -> Iterator[Case]:
    for kind in MAKE:
        yield case(f"of a {kind}", f"{made(kind, 'd')}\nrmdir d")
    yield case("of nothing", "rmdir d => !ENOENT\nrmdir d/e => !ENOENT")
    yield case("of dots", "mkdir d\nrmdir d/. => !EINVAL\nrmdir d/.. => !ENOTEMPTY\nrmdir d/ => ok")
    yield case("through a link with a slash", "mkdir d\nsymlink d l\nrmdir l => !ENOTDIR\nrmdir l/ => !ENOTDIR")
    yield case("that holds only a dangling link", "mkdir d\nsymlink x d/l\nrmdir d => !ENOTEMPTY\nunlink d/l\nrmdir d => ok")
    yield case("below a file", "write_file f\nrmdir f/d => !ENOTDIR")
    yield case("that is open", "mkdir d\nopendir h d\nrmdir d\nreaddir h\nclosedir h\nlstat d => !ENOENT\nmkdir d => ok", in_turns=False)
    yield case("that is open and asked for its links", "mkdir d\nopen f d RDONLY|DIRECTORY\nrmdir d\nfstat f nlink type\nclose f", in_turns=False)
    yield case("that one stands in", "mkdir d\ncd d\nrmdir ../d\nwrite_file f => !ENOENT\nmkdir e => !ENOENT\nlistdir . => []\ncd ..", in_turns=False)
    yield case("made again under its name", "mkdir d\nwrite_file d/f one\nunlink d/f\nrmdir d\nmkdir d 0700\nlistdir d => []\nwrite_file d/f other\nread_file d/f => other")


@group
def mknod() -> Iterator[Case]:
    for kind, mode, mask in itertools.product(("fifo", "sock", "reg", "chr", "blk"), ("0644", "0777", "0", "04755", "01000"), ("0", "027")):
        device = " 5 77" if kind in ("chr", "blk") else ""
        yield case(f"{kind} {mode} under umask {mask}", f"umask {mask}\nmknod n {kind} {mode}{device}\nlstat n")
    for major, minor in ((0, 0), (1, 3), (255, 255), (4095, 1048575), (8, 256)):
        for kind in ("chr", "blk"):
            yield case(f"{kind} {major}:{minor}", f"mknod n {kind} 0600 {major} {minor}\nlstat n type device\nstat n device")
    for kind, new in itertools.product(MAKE, ("fifo", "sock", "reg", "chr")):
        yield case(f"{new} over a {kind}", f"{made(kind, 'n')}\nmknod n {new} 0644 => !EEXIST")
    yield case("is no way to make a directory", "mknod n dir 0755")
    for kind in ("fifo", "sock", "reg", "chr", "blk"):
        yield case(f"{kind} by an ordinary user", f"chmod . 0777\nas 2001\nmknod n {kind} 0644 1 3\nlstat n")
        yield case(f"{kind} renamed, linked, removed", f"mknod n {kind} 0600 1 5\nlink n m\nrename n o\nlstat m\nunlink m\nlstat o\nchmod o 0606\nchown o 3 4\nutimens o 5 6\nlstat o")
    yield case("in what is no directory", "write_file f\nmknod f/n fifo => !ENOTDIR\nmknod no/n fifo => !ENOENT\nmknod n/ fifo => !ENOENT")
    yield case("a fifo carries data", "mknod p fifo\nopen r p RDONLY|NONBLOCK\nopen w p WRONLY|NONBLOCK\nwrite w hello\nread r 10 => hello\nclose w\nread r 10\nclose r\nstat p size type", in_turns=False)
    yield case("a fifo nobody reads", "mknod p fifo\nopen w p WRONLY|NONBLOCK => !ENXIO")
    yield case("a socket cannot be opened", "bind s\nlstat s type\nopen f s RDONLY => !ENXIO\nbind s => !EADDRINUSE\nunlink s\nbind s")
    yield case("a regular file", "mknod n reg 0640\nwrite_file n text\nread_file n => text\nlstat n")


@group
def symlink() -> Iterator[Case]:
    for name, target in {
        "short": "x", "with slashes": "../a//b/./c", "absolute": "/etc/passwd", "4095 bytes": "<t*4095>", "4096 bytes": "<t*4096>",
        "empty": "", "spaces and newlines": "a b\tc d ", "no UTF-8": "\udcff\udcfe", "other letters": "Größe-文件-🙂", "1000 bytes": "<abcd*250>",
    }.items():  # fmt: skip
        yield case(f"target {name}", f"symlink '{target}' l\nreadlink l\nlstat l\nrename l m\nreadlink m\nunlink m")
    for kind in MAKE:
        yield case(f"over a {kind}", f"{made(kind, 'l')}\nsymlink x l => !EEXIST\nreadlink l")
    yield case("circles", "symlink b a\nsymlink a b\nsymlink s s\nstat a => !ELOOP\nopen f s RDONLY => !ELOOP\nchmod a 0600 => !ELOOP\nstat a/x => !ELOOP\nlstat a type\nread_file s => !ELOOP\ntruncate a 1 => !ELOOP\nunlink a\nunlink b\nunlink s")
    for depth in (39, 40, 41):
        chain = "\n".join(f"symlink l{n} l{n + 1}" for n in range(depth))
        yield case(f"chain of {depth}", f"write_file l0 end\n{chain}\nread_file l{depth}")
    yield case("mode and owner", "umask 077\nsymlink x l\nlstat l mode uid\nlchown l 7 8\nlstat l uid gid mode\nas 2001\nreadlink l")
    yield case("trailing slash", "mkdir d\nsymlink d l\nlstat l/ type\nlstat l type\nreadlink l/ => !EINVAL\nsymlink x m/ => !ENOENT\nsymlink x d/ => !EEXIST")
    yield case("to a directory is walked through", "mkdir d\nwrite_file d/f text\nsymlink d l\nread_file l/f => text\nunlink l/f\nlistdir d\nunlink l")
    yield case("read of what is no link", "write_file f\nmkdir d\nmknod p fifo\nreadlink f => !EINVAL\nreadlink d => !EINVAL\nreadlink p => !EINVAL\nreadlink no => !ENOENT\nreadlink f/x => !ENOTDIR")
    yield case("dangling one is filled by creation", "symlink aim l\nwrite_file l text\nlstat aim\nlstat l type\nread_file aim => text")
    yield case("dangling one and O_EXCL", "symlink aim l\nopen f l WRONLY|CREAT|EXCL => !EEXIST\nlstat aim => !ENOENT")
    yield case("below nothing", "symlink x no/l => !ENOENT\nwrite_file f\nsymlink x f/l => !ENOTDIR\nsymlink x '' => !ENOENT")
    yield case("linked", "symlink x l\nlink l m\nlstat m\nlstat l nlink\nunlink l\nreadlink m\nlstat m nlink")
    yield case("replaced by rename", "symlink one l\nsymlink two m\nrename m l\nreadlink l => two\nlstat m => !ENOENT")


@group
def link() -> Iterator[Case]:
    for kind in MAKE:
        yield case(f"to a {kind}", f"{made(kind, 'n')}\nlink n m\nlstat n nlink\nlstat m\nsame n m")
        yield case(f"over a {kind}", f"write_file f text\n{made(kind, 'n')}\nlink f n => !EEXIST\nlstat f nlink")
    yield case("one file under all its names", "write_file a text\nlink a b\nlink b c\nmkdir d\nlink c d/e\nlstat a nlink\nappend_file b more\nread_file c\nchmod d/e 0600\nlstat a mode\ntruncate c 2\nread_file d/e\nunlink a\nlstat b nlink\nsame b d/e\nunlink b\nunlink c\nread_file d/e\nlstat d/e nlink")
    yield case("source is gone or no directory", "link no n => !ENOENT\nwrite_file f\nlink f/x n => !ENOTDIR\nlink f no/n => !ENOENT\nlink f f/n => !ENOTDIR\nlink f '' => !ENOENT\nlink '' n => !ENOENT\nlink f n/ => !ENOENT")
    yield case("to itself", "write_file f\nlink f f => !EEXIST\nlink f ./f => !EEXIST")
    yield case("of links, followed or not", "write_file f text\nsymlink f l\nlink l m\nlstat m type\nlink l n follow\nlstat n type nlink\nsymlink no d\nlink d e\nlink d g follow => !ENOENT")
    yield case("many names", "write_file f text\n" + "\n".join(f"link f f{n}" for n in range(60)) + "\nlstat f nlink\nunlink f\nlstat f59 nlink\nread_file f31")
    yield case("to a file that is open and has no name left", "open f x RDWR|CREAT 0644\nwrite f text\nunlink x\nfstat f nlink\nflink f y\nclose f", in_turns=False)
    yield case("while open", "open f x RDWR|CREAT 0644\nlink x y\nfstat f nlink\nwrite f text\nunlink x\nfstat f nlink\nclose f\nread_file y => text", in_turns=False)
    yield case("replaced by another", "write_file a one\nlink a b\nwrite_file c two\nrename c b\nlstat a nlink\nread_file b => two\nread_file a => one")
    yield case("over directories", "mkdir d\nmkdir e\nwrite_file d/f x\nlink d/f e/g\nunlink d/f\nrmdir d\nread_file e/g => x")


@group
def unlink() -> Iterator[Case]:
    for kind in MAKE:
        yield case(f"of a {kind}", f"{made(kind, 'n')}\nunlink n\nlstat n\nlistdir .")
        yield case(f"of a {kind} with a slash", f"{made(kind, 'n')}\nunlink n/")
    yield case("of nothing", "unlink n => !ENOENT\nunlink no/n => !ENOENT\nwrite_file f\nunlink f/n => !ENOTDIR\nunlink '' => !ENOENT\nunlink . => !EISDIR\nunlink .. => !EISDIR")
    yield case("of a link leaves its aim", "write_file f text\nsymlink f l\nunlink l\nread_file f => text")
    yield case("and made again", "write_file f one\nunlink f\nopen x f RDONLY => !ENOENT\nwrite_file f two 0600\nread_file f => two\nlstat f mode nlink size")
    yield case(
        "of an open file",
        "open f n RDWR|CREAT 0644\nwrite f hello\nunlink n\nlstat n => !ENOENT\nfstat f nlink size\npread f 10 0 => hello\nwrite f more\npread f 20 0 => hellomore\n"
        "ftruncate f 3\nfstat f size nlink\nfchmod f 0600\nfstat f mode\nfchown f 3 4\nfstat f uid gid\nfutimens f 5 6\nfstat f mtime\nfsync f\nclose f\nlistdir .",
        in_turns=False,
    )  # fmt: skip
    yield case("of an open file, another under its name", "open f n RDWR|CREAT 0644\nwrite f old\nunlink n\nwrite_file n fresh\npread f 10 0 => old\nread_file n => fresh\nfstat f nlink size\nlstat n nlink size\nclose f\nread_file n => fresh", in_turns=False)
    yield case("of an open file, twice opened", "open f n RDWR|CREAT 0644\nopen g n RDONLY\nunlink n\nwrite f text\nread g 10 => text\nclose f\nlseek g 0\nread g 10 => text\nfstat g nlink\nclose g", in_turns=False)
    yield case("of an open file by another process", "open f n RDWR|CREAT 0644\nwrite f text\np1 unlink n\np1 lstat n => !ENOENT\npread f 9 0 => text\nfstat f nlink\np1 pread f 9 0 => text\nclose f\np1 pread f 9 0 => text\np1 close f", in_turns=False)
    yield case("the name can be a directory's next", "open f n RDWR|CREAT\nunlink n\nmkdir n\nwrite f x\nfstat f type nlink\nlstat n type\nclose f\nlstat n type", in_turns=False)
    yield case("of a directory of open files", "mkdir d\nopen f d/n RDWR|CREAT\nwrite f text\nunlink d/n\nrmdir d => ok\npread f 9 0 => text\nfstat f nlink\nclose f", in_turns=False)


RENAMES = ("file", "directory", "full directory", "link to file", "link to directory", "dangling link", "fifo", "character device")


@group
def rename() -> Iterator[Case]:
    for kind in MAKE:
        yield case(f"of a {kind}", f"{made(kind, 'a')}\nlstat a\nrename a b\nlstat a => !ENOENT\nlstat b\nmkdir d\nrename b d/c\nlistdir d\nlstat d nlink\nlstat . nlink\nlstat d/c")
        yield case(f"of a {kind} to itself", f"{made(kind, 'a')}\nrename a a => ok\nrename a ./a => ok\nlstat a")
        yield case(f"of a {kind} to where no directory is", f"{made(kind, 'a')}\nrename a no/b => !ENOENT\nwrite_file f\nrename a f/b => !ENOTDIR\nlstat a type")
        yield case(f"of a {kind} with a slash", f"{made(kind, 'a')}\nrename a b/\nlistdir .\nrename a/ c\nlistdir .")
    yield case("of nothing", "rename a b => !ENOENT\nwrite_file b x\nrename a b => !ENOENT\nread_file b\nrename a/c b => !ENOENT\nrename b/c d => !ENOTDIR")
    yield case("of dots", "mkdir d\nrename . x => !EBUSY\nrename d/. x => !EBUSY\nrename d/.. x => !EBUSY\nrename d . => !EBUSY\nrename d .. => !EBUSY\nwrite_file f\nrename f d/. => !EBUSY")
    yield case("into itself", "mkdir a\nmkdir a/b\nmkdir a/b/c\nrename a a/x => !EINVAL\nrename a a/b/c/x => !EINVAL\nrename a a/b => !EINVAL\nrename a/b a => !ENOTEMPTY\nrename a/b/c a => !ENOTEMPTY\nlistdir a")
    yield case("keeps times and moves what is below", "mkdir a\nmkdir a/b\nwrite_file a/b/f text\nutimens a/b/f 11 22\nutimens a/b 33 44\nrename a z\nread_file z/b/f => text\nlstat z/b/f mtime\nlstat z/b mtime\nstat a/b/f => !ENOENT\nwrite_file z/b/g more\nlistdir z/b")
    yield case("a directory to another parent", "mkdir p\nmkdir q\nmkdir p/d\nwrite_file p/d/f x\nrename p/d q/e\nlstat p nlink\nlstat q nlink\nlistdir q/e\nrename q/e/f p/f\nread_file p/f\nrmdir q/e\nlstat q nlink\nstat q/e/.. nlink")
    yield case("the parent of a moved directory", "mkdir p\nmkdir q\nmkdir p/d\nrename p/d q/d\nwrite_file q/mark\nlistdir q/d/..\ncd q/d\nlistdir ..\ncd ../..")
    yield case("of one of two names", "write_file a text\nlink a b\nrename a b\nlistdir .\nlstat a nlink\nlink a c\nrename a d\nlstat b nlink\nsame b d")
    yield case("over a file with more names", "write_file a one\nwrite_file b two\nlink b c\nrename a b\nread_file b => one\nread_file c => two\nlstat c nlink\nlstat b nlink")
    yield case("over an open file", "write_file a fresh\nopen f b RDWR|CREAT\nwrite f old\nrename a b\nread_file b => fresh\npread f 9 0 => old\nfstat f nlink size\nwrite f er\npread f 9 0 => older\nclose f\nread_file b => fresh", in_turns=False)
    yield case("of an open file", "open f a RDWR|CREAT\nwrite f one\nrename a b\nwrite f two\nread_file b => onetwo\nfstat f nlink size\nmkdir d\nrename b d/c\nwrite f 3\nlstat d/c size\nclose f\nread_file d/c => onetwo3", in_turns=False)
    yield case("of the directory of an open file", "mkdir d\nopen f d/a RDWR|CREAT\nwrite f one\nrename d e\nwrite f two\nread_file e/a => onetwo\nclose f\nread_file e/a\nunlink e/a\nrmdir e", in_turns=False)
    yield case("back and forth", "write_file a x\n" + "rename a b\nrename b a\n" * 15 + "read_file a\nlistdir .")
    yield case("a ring of three", "write_file a 1x\nwrite_file b 2x\nwrite_file c 3x\nrename a t\nrename b a\nrename c b\nrename t c\nread_file a\nread_file b\nread_file c")
    yield case("the name is free at once", "write_file a one\nrename a b\nwrite_file a two\nread_file a => two\nread_file b => one\nmkdir d\nrename d e\nmkdir d\nlistdir .")


@group
def rename_over() -> Iterator[Case]:
    for one, other in itertools.product(RENAMES, RENAMES):
        # Aims of links have names of their own for each side.
        target = made(other, "b").replace("aim", "bim")
        yield case(f"a {one} over a {other}", f"{made(one, 'a')}\n{target}\nrename a b\nlstat b\nlstat a type\nlstat . nlink\nlistdir .")
        yield case(f"a {one} over a {other} in another directory", f"mkdir d\nmkdir e\ncd d\n{made(one, 'a')}\ncd ../e\n{target}\ncd ..\nrename d/a e/b\nlstat e/b\nlstat d nlink\nlstat e nlink\nlistdir d\nlistdir e")


@group
def rename_flags() -> Iterator[Case]:
    for one, other in itertools.product(RENAMES, RENAMES):
        target = made(other, "b").replace("aim", "bim")
        yield case(f"exchange a {one} and a {other}", f"{made(one, 'a')}\n{target}\nmkdir d\nrename a b EXCHANGE\nlstat a\nlstat b\nrename b d/x\nrename a d/x EXCHANGE\nlstat a\nlstat d nlink\nlstat . nlink")
        yield case(f"no replacement of a {other} by a {one}", f"{made(one, 'a')}\n{target}\nrename a b NOREPLACE => !EEXIST\nlstat b type\nlistdir .")
    for kind in RENAMES:
        yield case(f"a {kind} where nothing is", f"{made(kind, 'a')}\nrename a b NOREPLACE => ok\nlistdir .\nrename b c EXCHANGE => !ENOENT\nrename b b NOREPLACE => !EEXIST\nrename b b EXCHANGE => ok")
    yield case("flags that exclude each other", "write_file a\nrename a b NOREPLACE|EXCHANGE => !EINVAL\nrename a b 8 => !EINVAL\nrename a b 0x40000000 => !EINVAL".replace("0x40000000", str(1 << 30)))
    yield case("exchange with what is below", "mkdir a\nmkdir a/b\nrename a a/b EXCHANGE => !EINVAL\nrename a/b a EXCHANGE\nlistdir a")
    yield case("exchange of directories with content", "mkdir a\nmkdir b\nmkdir p\nwrite_file a/1x one\nmkdir b/2x\nrename a b EXCHANGE\nlistdir a\nlistdir b\nrename b p/b\nrename a p/b EXCHANGE\nlistdir p/b\nlistdir a\nlstat p nlink")
    yield case("a whiteout", "write_file a text\nrename a b WHITEOUT # or EINVAL\nlstat a\nread_file b")


@group
def long_names() -> Iterator[Case]:
    for make in ("mkdir {0}", "write_file {0} x", "mknod {0} fifo", "symlink x {0}", "mknod {0} chr 0600 1 3"):
        yield case(f"{make.split()[0]} with 255 bytes", f"{make.format(LONG)}\nlstat {LONG}\nlistdir .")
        yield case(f"{make.split()[0]} with 256 bytes", f"{make.format(TOO_LONG)}\nlistdir .")
    yield case("of 255 bytes lead everywhere", f"mkdir {LONG}\nwrite_file {LONG}/{LONG} text\nread_file {LONG}/{LONG} => text\nrename {LONG}/{LONG} {LONG}/<m*255>\nlistdir {LONG}\nunlink {LONG}/<m*255>\nrmdir {LONG}")
    for call in ("rmdir {0}", "unlink {0}", "stat {0}", "lstat {0}", "open f {0} RDONLY", "open f {0} RDWR|CREAT", "rename f {0}", "rename {0} f", "link f {0}", "link {0} g", "chmod {0} 0600", "chown {0} 1 1", "truncate {0} 0", "utimens {0} 1 1", "readlink {0}", "access {0} F_OK", "setxattr {0} user.a b", "mkdir {0}/d", "symlink x {0}"):
        yield case(f"{call.format('NAME')} of 256 bytes", f"write_file f\n{call.format(TOO_LONG)}\nlistdir .")
    # 255 bytes, but fewer letters: the limit is in bytes.
    yield case("limit is in bytes", "mkdir <é*127>\nmkdir <é*128> => !ENAMETOOLONG\nmkdir <🙂*63>abc\nmkdir <🙂*64> => !ENAMETOOLONG\nlistdir .")
    for name in ("a b", " ", "new\tline", "-rf", "...", "a\\b", "*", "?", "'q'".replace("'", '"'), "é", "e\u0301", "\udcff", "\udc80x", "A", "文件", "🙂", "~", "#x", "a:b", "%41", "$HOME"):
        yield case(f"{name!r}", f"write_file '{name}' text\nread_file '{name}' => text\nlistdir .\nrename '{name}' z\nrename z '{name}'\nmkdir d\nlink '{name}' 'd/{name}'\nlistdir d\nunlink '{name}'")
    yield case("letters that look alike are not the same", "write_file é one\nwrite_file e\u0301 two\nwrite_file A three\nwrite_file a four\nread_file é => one\nread_file a => four\nlistdir .")
    # A path of 4095 bytes is the longest that a call takes; PATH_MAX counts the NUL.
    deep = "d23456789/" * 400
    yield case("a path of 4095 bytes", f"mkdir d\nwrite_file {'./' * 2040}d/{'f' * 13} x\nlstat {'./' * 2040}d/{'f' * 13}\nlistdir d")
    yield case("a path of 4096 bytes", f"mkdir d\nwrite_file {'./' * 2040}d/{'f' * 14} x => !ENAMETOOLONG\nlstat {'./' * 2040}d/{'f' * 14} => !ENAMETOOLONG\nlistdir d")
    yield case("a deep tree", "descend d23456789 400\nwrite_file leaf x\nlstat leaf size\nlistdir .", in_turns=False)
    yield case("a path into a deep tree", f"descend d23456789 400\nwrite_file leaf x\ncd .\nread_file {deep}leaf\nread_file {deep}d23456789/leaf\nread_file {deep}{'x' * 94}\nread_file {deep}{'x' * 95}\nread_file {deep}{'x' * 96}", in_turns=False)
    yield case("what pathconf says", "pathconf . PC_NAME_MAX => 255\npathconf . PC_PATH_MAX\nstatvfs . namemax")


@group
def directories_being_read() -> Iterator[Case]:
    everything = "\n".join(made(kind, f"d/{number}x").replace("aim", "d/aim") for number, kind in enumerate(MAKE))
    yield case("all kinds", f"mkdir d\n{everything}\nopendir h d\nreaddir h\nclosedir h")
    yield case("an empty one", "mkdir d\nopendir h d\nreaddir h\nreaddir h\nclosedir h")
    yield case("of what is none", "write_file f\nopendir h f => !ENOTDIR\nopendir h no => !ENOENT\nsymlink no l\nopendir h l => !ENOENT")
    yield case("again from the start", "mkdir d\nmake_files d 40\nopendir h d\nreaddir_count h 20\nrewinddir h\nreaddir h\nclosedir h")
    yield case("rewound, it shows what is new", "mkdir d\nopendir h d\nreaddir h\nwrite_file d/f\nmkdir d/e\nrewinddir h\nreaddir h\nunlink d/f\nrewinddir h\nreaddir h\nclosedir h", in_turns=False)
    yield case("opened before, read after", "mkdir d\nopendir h d\nwrite_file d/f\nreaddir h # any\nrewinddir h\nreaddir h\nclosedir h", in_turns=False)
    for count in (3, 100, 1500):
        yield case(f"{count} files", f"mkdir d\nmake_files d {count}\nopendir h d\nreaddir_count h => {count + 2}\nclosedir h\nlistdir d")
        yield case(f"{count} files removed while being read", f"mkdir d\nmake_files d {count}\nopendir h d\nreaddir_unlinking h d => [{count}, 0]\nclosedir h\nrmdir d")
        yield case(f"{count} files, seeking", f"mkdir d\nmake_files d {count}\nopendir h d\nreaddir_seeking h {count // 2} => True\nclosedir h")
    yield case("half read, and the other half is still there", "mkdir d\nmake_files d 1000\nopendir h d\nreaddir_count h 502\nmake_files d 50 new\nreaddir_count h # any\nrewinddir h\nreaddir_count h => 1052\nclosedir h", in_turns=False)
    yield case("long names in number", "mkdir d\nmake_files d 300 <n*250>\nopendir h d\nreaddir_count h => 302\nclosedir h")
