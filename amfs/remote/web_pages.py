"""The names on a web server's page of a directory: Apache, nginx, lighttpd, Python's and others' write one link for each entry.

Owns which links are entries. fsspec leaves out every name that begins with ``http``, and takes links that sort the page for files.
"""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit


def entries(page: bytes, directory: str) -> list[str]:
    """The URLs of the files and directories (with a slash at the end) directly below ``directory``, which ends with a slash itself."""
    reader = _Links()
    reader.feed(page.decode(errors="surrogateescape"))
    top = urlsplit(directory)
    path = unquote(top.path, errors="surrogateescape")
    found: dict[str, None] = {}
    for link in reader.links:
        try:
            target = urlsplit(urljoin(directory, link))
        except ValueError:
            continue
        above, _, name = target.path.rstrip("/").rpartition("/")
        if target.netloc != top.netloc or target.query or not name or unquote(above + "/", errors="surrogateescape") != path:
            continue
        found[directory + name + ("/" if target.path.endswith("/") else "")] = None
    return list(found)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
