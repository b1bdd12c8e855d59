"""Cases for two mounts of two nodes: a change through one is there through the other, from the return of the call on.

Where a kernel judges by what it saw last (the promise in docs/promises.md) a case looks first.

For data in open files that holds from close to open. With one mount they are cases like the others.
"""

# ruff: noqa: E501  (a case is a line of a table)

from __future__ import annotations

import itertools
from collections.abc import Iterator

from areas_names import MAKE, made
from tables import Case, case, group


@group
def seen_by_the_other_node() -> Iterator[Case]:
    for kind, first in itertools.product(MAKE, (0, 1)):
        here, there = f"@{first}", f"@{1 - first}"
        lines = [f"{here} {line}" for line in made(kind, "n").splitlines()]
        text = "\n".join(lines)
        yield case(f"a {kind}, mount {first}", f"{there} lstat n => !ENOENT\n{there} listdir .\n{text}\n{there} lstat n\n{there} listdir .\n{there} rename n m\n{here} lstat n => !ENOENT\n{here} lstat m\n{here} listdir .")
        yield case(f"a {kind} changed, mount {first}", f"{text}\n{there} lstat n\n{here} chmod n 0611\n{there} stat n mode\n{here} lchown n 7 8\n{there} lstat n uid gid\n{here} utimens n 5.5 6.6 nofollow\n{there} lstat n mtime\n{there} chmod n 0622\n{here} stat n mode")
        if "link" not in kind:
            yield case(f"a {kind} given away, mount {first}", f"chmod . 0777\n{text}\n{here} lstat n uid\n{there} chown n 2002 2002\n{here} as 2002\n{here} lstat n uid\n{here} chmod n 0640 => ok\n{here} utimens n 5.5 6.6 => ok\n{here} as 0\n{there} chown n 2003 2003\n{here} as 2002\n{here} lstat n uid\n{here} chmod n 0600 => !EPERM\n{here} as 0")
        yield case(f"a {kind} removed, mount {first}", f"{text}\n{there} lstat n type\n{here} unlink n\n{here} rmdir n\n{there} lstat n\n{there} listdir .")
    for here, there in (("@0", "@1"), ("@1", "@0")):
        for text in ("utimens n{k} 5 6", "chmod n{k} 0640", "open f n{k} RDWR|TRUNC\n{here} close f"):
            yield case(f"given away after {text}, mount {here}", "chmod . 0777\n" + "".join(f"{there} write_file n{k}\n{there} lstat n{k}\n{here} {text.format(here=here, k=k)}\n{here} chown n{k} 2001 2005\n{there} as 2001\n{there} lstat n{k} uid\n{there} chmod n{k} 0700 => ok\n{there} as 0\n" for k in range(8)))
        yield case(f"a directory's time after one's own change, mount {here}", "".join(f"{here} mkdir d{k}\n{there} lstat d{k}\n{here} utimens d{k} 5 6\n{there} lstat d{k} mtime\n{here} mknod d{k}/f fifo\n{here} lstat d{k} mtime => {{'mtime': 'now'}}\n" for k in range(20)))
        yield case(f"sticky by the other, mount {here}", f"@0 chmod . 0777\n{here} mkdir d\n{here} chmod d 01777\n{here} lstat d mode\n{there} chmod d 0600\n{here} as 2002\n{here} lstat d mode\n{here} setxattr d user.a x => !EACCES\n{here} as 0\n{here} chmod d 0777\n{here} lstat d mode\n{there} chmod d 01777\n{here} as 2002\n{here} lstat d mode\n{here} setxattr d user.a x => !EPERM\n{here} as 0")
        yield case(f"times before 1970 and after today, mount {here}", "".join(f"{here} mkdir d{k}\n{here} utimens d{k} -5.5 {time}\n{there} lstat d{k} mtime\n{there} mknod d{k}/f fifo\n{there} fresh_times d{k}\n{here} utimens d{k} 5 {time}\n{there} lstat d{k} mtime\n" for k, time in enumerate(("-6.5", "-1.999999999", "5000000000.5"))))
    for size in (0, 1, 5000, 524289, 3 << 20):
        yield case(f"{size} bytes", f"@0 write_file n '<a*{size}>'\n@1 read_file n\n@1 append_file n more\n@0 read_file n\n@0 truncate n 3\n@1 read_file n\n@1 lstat n size\n@1 write_file n '<b*{size}>'\n@0 read_file n\n@0 unlink n\n@1 read_file n => !ENOENT".replace("'<a*0>'", "''").replace("'<b*0>'", "''"))
        yield case(f"{size} bytes through open files", f"@0 open f n RDWR|CREAT\n@0 pwrite f x {size}\n@0 close f\n@1 open f n RDWR\n@1 fstat f size\n@1 pread f 9 {size} => x\n@1 pwrite f y {size}\n@1 close f\n@0 open f n RDONLY\n@0 pread f 9 {size} => y\n@0 close f")
    yield case("written again and again, by turns", "".join(f"@{n % 2} write_file n round{n}\n@{1 - n % 2} read_file n => round{n}\n" for n in range(20)))
    yield case("appended by turns", "@0 write_file n\n" + "".join(f"@{n % 2} append_file n {n}x\n@{1 - n % 2} lstat n size\n" for n in range(20)) + "@0 read_file n\n@1 read_file n")
    yield case("made and removed by turns", "".join(f"@{n % 2} write_file n x{n}\n@{1 - n % 2} unlink n => ok\n@{n % 2} lstat n => !ENOENT\n" for n in range(10)))
    yield case("renamed by turns", "@0 write_file a0x text\n" + "".join(f"@{n % 2} rename a{n}x a{n + 1}x => ok\n@{1 - n % 2} lstat a{n}x => !ENOENT\n@{1 - n % 2} read_file a{n + 1}x => text\n" for n in range(10)))
    yield case("exclusive by both", "".join(f"@0 open f n{n} RDWR|CREAT|EXCL => ok\n@1 open g n{n} RDWR|CREAT|EXCL => !EEXIST\n@0 close f\n" for n in range(5)))
    yield case("mkdir by both", "@0 mkdir d => ok\n@1 mkdir d => !EEXIST\n@1 write_file d/f x\n@0 rmdir d => !ENOTEMPTY\n@0 unlink d/f\n@1 rmdir d => ok\n@0 lstat d => !ENOENT\n@0 mkdir d => ok\n@1 listdir d => []")
    yield case("links", "@0 write_file a text\n@1 link a b\n@0 lstat a nlink\n@1 append_file b more\n@0 read_file a => textmore\n@0 unlink a\n@1 lstat b nlink\n@1 read_file b => textmore\n@0 link b c\n@1 lstat b nlink\n@1 same b c")
    yield case("set-id bits of a file that the other renames and links", "@0 write_file n x\n@0 chmod n 06755\n@1 rename n m\n@0 lstat m mode\n@1 link m l\n@0 lstat m mode\n@1 write_file p x\n@1 chmod p 06755\n@0 rename p m\n@1 lstat m mode\n@0 unlink l\n@0 link m k\n@1 lstat k mode")
    yield case("a name that was looked for in vain", "@1 lstat n => !ENOENT\n@1 open f n RDONLY => !ENOENT\n@0 write_file n one\n@1 read_file n => one\n@1 unlink n\n@0 lstat n => !ENOENT\n@1 lstat n => !ENOENT\n@0 mkdir n\n@1 lstat n type")
    yield case("a name that becomes another thing", "@0 write_file n one\n@1 lstat n type\n@0 unlink n\n@0 mkdir n\n@1 lstat n type\n@1 write_file n/f x\n@0 listdir n\n@0 unlink n/f\n@0 rmdir n\n@0 symlink aim n\n@1 readlink n => aim\n@1 lstat n type\n@0 unlink n\n@0 write_file n two\n@1 read_file n => two")
    yield case("replaced by rename", "@0 write_file n old\n@1 read_file n => old\n@0 write_file m new\n@0 rename m n\n@1 read_file n => new\n@1 lstat m => !ENOENT\n@1 lstat n size nlink")
    yield case("a directory moved away with what is below", "@0 mkdir a\n@0 mkdir a/b\n@0 write_file a/b/f text\n@1 read_file a/b/f => text\n@0 rename a z\n@1 stat a/b/f => !ENOENT\n@1 read_file z/b/f => text\n@1 write_file z/b/g more\n@0 listdir z/b\n@1 rename z/b a\n@0 listdir a\n@0 listdir z")
    yield case("attributes", "@0 write_file n x\n@1 setxattr n user.a one\n@0 getxattr n user.a => one\n@0 listxattr n\n@0 removexattr n user.a\n@1 getxattr n user.a => !ENODATA\n@1 listxattr n => []")
    yield case("modes count at once", "@0 write_file n text 0600\n@1 as 2003\n@1 read_file n => !EACCES\n@1 as 0\n@0 chmod n 0604\n@1 as 2003\n@1 read_file n => text\n@1 as 0\n@0 chmod n 0600\n@1 as 2003\n@1 read_file n => !EACCES")
    yield case("directories closed by the other", "@0 mkdir d 0755\n@0 write_file d/f text 0644\n@1 as 2003\n@1 read_file d/f => text\n@1 as 0\n@0 chmod d 0700\n@1 as 2003\n@1 read_file d/f => !EACCES\n@1 listdir d => !EACCES")
    yield case("a large directory", "@0 mkdir d\n@0 make_files d 500\n@1 opendir h d\n@1 readdir_count h => 502\n@1 closedir h\n@1 make_files d 500 g\n@0 listdir d\n@0 opendir h d\n@0 readdir_unlinking h d\n@0 closedir h\n@1 listdir d => []\n@1 rmdir d => ok")


@group
def open_on_one_node() -> Iterator[Case]:
    """A file open on one node keeps what it is whatever becomes of its names on the other."""
    for first in (0, 1):
        here, there = f"@{first}", f"@{1 - first}"
        yield case(f"removed by the other, mount {first}", f"{here} open f n RDWR|CREAT\n{here} write f text\n{there} unlink n => ok\n{here} lstat n => !ENOENT\n{here} pread f 9 0 => text\n{here} write f more\n{here} pread f 9 0 => textmore\n{here} close f\n{here} listdir .\n{there} listdir .")
        yield case(f"read only, removed by the other, mount {first}", f"{there} write_file n '<t*700000>'\n{here} open f n RDONLY\n{here} pread f 5 0\n{there} unlink n\n{here} pread f 700000 0\n{here} close f\n{here} lstat n => !ENOENT")
        yield case(f"a copy opened again, removed by the other, mount {first}", "".join(f"{there} write_file n{k} text\n{here} read_file n{k}\n{here} open f n{k} RDONLY\n{there} chmod n{k} 0600\n{there} unlink n{k}\n{here} fstat f nlink size mode => {{'nlink': 0, 'size': 4, 'mode': '0600'}}\n{here} pread f 9 0 => text\n{here} close f\n" for k in range(5)) + f"{here} listdir .")
        yield case(f"moved away by the other while something in it is open, mount {first}", f"{here} mkdir d\n{there} mkdir d/b\n{there} symlink nowhere a\n{here} open f d/b/n RDWR|CREAT\n{here} mkdir d/d\n{there} rename d/b a EXCHANGE\n{here} lstat a type\n{here} rename d/d a => !ENOTEMPTY\n{here} write f text\n{here} lstat a/n size\n{here} close f\n{there} read_file a/n => text\n{here} listdir a")
        yield case(f"moved by the other while it is open itself, mount {first}", f"{here} mkdir d\n{here} open f d RDONLY|DIRECTORY\n{there} mkdir p\n{there} rename d p/e\n{here} futimens f 743303310.5 583011462.5\n{here} write_file p/e/n x\n{here} fstat f mtime\n{here} chmod p/e 0711\n{here} fstat f mode\n{here} utimens p/e 5.5 6.5\n{here} fstat f mtime\n{here} mkdir p/e/m\n{here} fstat f mtime nlink\n{here} close f")
        yield case(f"renamed by the other, mount {first}", f"{here} open f n RDWR|CREAT\n{here} write f one\n{there} rename n m => ok\n{here} write f two\n{here} close f\n{there} read_file m => onetwo\n{here} read_file m => onetwo\n{here} lstat n => !ENOENT")
        yield case(f"replaced by the other, mount {first}", f"{here} open f n RDWR|CREAT\n{here} write f old\n{there} write_file m new\n{there} rename m n => ok\n{here} pread f 9 0 => old\n{here} read_file n => new\n{here} close f\n{here} read_file n => new\n{there} read_file n => new")
        yield case(f"its directory moved by the other, mount {first}", f"{here} mkdir d\n{here} open f d/n RDWR|CREAT\n{here} write f one\n{there} rename d e => ok\n{here} write f two\n{here} close f\n{there} read_file e/n => onetwo\n{here} listdir e")
        yield case(f"its mode changed by the other, mount {first}", f"{here} open f n RDWR|CREAT 0644\n{here} write f one\n{there} chmod n 0400 => ok\n{here} fstat f mode\n{here} write f two\n{here} close f\n{there} lstat n mode\n{there} read_file n => onetwo")
        yield case(f"its mode changed again after it was closed, mount {first}", "".join(f"{here} open f n{k} RDWR|CREAT 0644\n{here} write f one\n{there} chmod n{k} 0640 => ok\n{here} close f\n{here} lstat n{k} mode\n{here} read_file n{k}\n{there} chmod n{k} 0600 => ok\n{here} lstat n{k} mode => {{'mode': '0600'}}\n" for k in range(6)))
        yield case(f"linked by the other, mount {first}", f"{here} open f n RDWR|CREAT\n{here} write f one\n{there} link n m => ok\n{here} fstat f nlink\n{here} close f\n{there} read_file m => one\n{there} unlink n\n{here} read_file m => one")
        yield case(f"its directory removed by the other, mount {first}", f"{here} mkdir d\n{here} opendir h d\n{there} rmdir d => ok\n{here} readdir h\n{here} closedir h\n{here} lstat d => !ENOENT")
        yield case(f"whole after close, mount {first}", f"{here} open f n WRONLY|CREAT\n" + f"{here} write f '<z*100000>'\n" * 12 + f"{here} close f\n{there} lstat n size => {{'size': 1200000}}\n{there} read_file n")
        yield case(f"times of a copy, mount {first}", f"{here} write_file n text\n{there} read_file n\n{here} chmod n 0600\n{here} utimens n 5.5 6.5\n{there} open f n WRONLY\n{there} close f\n{there} lstat n mtime => {{'mtime': '6.500000000'}}\n{here} lstat n mtime => {{'mtime': '6.500000000'}}")
        yield case(f"times of an empty copy, mount {first}", "".join(f"{here} write_file n{k}\n{here} utimens n{k} 5.5 6.5\n{there} read_file n{k}\n{there} open f n{k} WRONLY\n{there} close f\n{there} lstat n{k} mtime => {{'mtime': '6.500000000'}}\n{here} lstat n{k} mtime => {{'mtime': '6.500000000'}}\n" for k in range(6)))
        yield case(f"written by the other while it is open, mount {first}", "".join(f"{here} open f n WRONLY|CREAT\n{there} write_file n text{n}\n{here} close f\n{here} lstat n size => {{'size': 5}}\n{there} lstat n size => {{'size': 5}}\n{there} read_file n => text{n}\n" for n in range(1, 6)))
        yield case(f"times set as soon as it is closed, mount {first}", "".join(f"{there} write_file n text{n}\n{here} read_file n\n{here} open f n WRONLY\n{here} fstat f\n{here} write f more\n{here} close f\n{here} utimens n 5.5 {n}.5\n{there} lstat n mtime => {{'mtime': '{n}.500000000'}}\n" for n in range(1, 6)))
        yield case(f"closed and open again by the other, mount {first}", "".join(f"{here} open f n RDWR|CREAT\n{here} lseek f 0 SEEK_END\n{here} write f {n}ab\n{here} close f\n{there} open g n RDWR\n{there} lseek g 0 SEEK_END\n{there} write g {n}cd\n{there} close g\n" for n in range(8)) + f"{here} read_file n")
    yield case("one reader each of a finished file", "@0 write_file n '<r*600000>'\n@0 open f n RDONLY\n@1 open g n RDONLY\n@0 pread f 600000 0\n@1 pread g 600000 0\n@1 mread g 1000 500000\n@0 close f\n@1 close g")
