"""Pages of directories as web servers write them: every entry, and nothing else."""

from __future__ import annotations

import pytest

from amfs.remote.web_pages import entries

TOP = "https://host:8/data/in/"
NGINX = b"""<html>
<head><title>Index of /data/in/</title></head>
<body><h1>Index of /data/in/</h1><hr><pre><a href="../">../</a>
<a href="sub%20dir/">sub dir/</a>          28-Nov-2026 02:00       -
<a href="a%26b.txt">a&amp;b.txt</a>          28-Nov-2026 02:00       5
<a href="http%3A">http:</a>          28-Nov-2026 02:00       5
<a href="httpd.conf">httpd.conf</a>          28-Nov-2026 02:00       5
<a href="%C3%A9%25">x</a>          28-Nov-2026 02:00       5
</pre><hr></body></html>"""
APACHE = b"""<table><tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td><a href="/data/">Parent Directory</a></td></tr>
<tr><td><a href="https.log">https.log</a></td></tr><tr><td><A HREF='./a:b'>a:b</A></td></tr>
<tr><td><a href="/data/in/absolute">absolute</a></td></tr><tr><td><a href="https://host:8/data/in/whole/">whole</a></td></tr></table>
<a href="https://elsewhere/data/in/other">other</a> <a href="deep/er">deeper</a> <a href="mailto:me">me</a> <a name="x">x</a>
<a href="http://[bad/">bad</a> <a href="#top">top</a> <a href="https.log#again">again</a>"""


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (NGINX, ["sub%20dir/", "a%26b.txt", "http%3A", "httpd.conf", "%C3%A9%25"]),
        (APACHE, ["https.log", "a:b", "absolute", "whole/"]),
        (b"", []),
        (b"\xff\x00 no page <a href=", []),
    ],
)
def test_entries_of_a_page(page: bytes, names: list[str]) -> None:
    assert entries(page, TOP) == [TOP + name for name in names]


def test_a_directory_may_be_written_in_two_ways() -> None:
    top = "https://host/a b/"
    assert entries(b'<a href="/a%20b/c%20d">c d</a>', top) == [top + "c%20d"]
