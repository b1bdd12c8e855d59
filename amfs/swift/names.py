"""Names of files as text: parts, joining. As os.path, without the world."""

from __future__ import annotations


def directory_of(name: str) -> str:
    """As dirname(1): "." without a slash."""
    stripped = name.rstrip("/")
    if not stripped:
        return "/" if name else "."
    head = stripped.rpartition("/")[0]
    return (head.rstrip("/") or "/") if "/" in stripped else "."


def last_part(name: str) -> str:
    """As basename(1)."""
    return name.rstrip("/").rpartition("/")[2] or ("/" if name else "")


def split_extension(name: str) -> tuple[str, str]:
    """("dir/a.b", ".c") of "dir/a.b.c". A name that begins with its only dot has no extension."""
    head, slash, last = name.rpartition("/")
    root, dot, extension = last.rpartition(".")
    return (head + slash + root, dot + extension) if root.strip(".") else (name, "")


def joined(directory: str, name: str) -> str:
    """``directory / name``: one slash between them."""
    return f"{directory.rstrip('/') or '/'}/{name.lstrip('/')}".replace("//", "/", 1) if directory else name


def local(name: str) -> str:
    """Of a file: URL its path; any other name as it is. As in Swift/K, the path begins after the slash that ends the host: in
    "file://localhost/x" it is relative, and absolute in "file://localhost//x" and "file:///x"."""
    return name.removeprefix("file://localhost/").removeprefix("file://")


def is_url(name: str) -> bool:
    """Does it name something outside of this machine?"""
    return "://" in name and not name.startswith("file://")
