"""mkdocs hooks: files of the repository to which the pages of docs/ link come along, so that every link of the site leads somewhere.

A file of the repository outside docs/ is at ``tree/PATH`` of the site. The pages themselves are as they are read in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
ALWAYS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def repository_path(site_path: str) -> str:
    """Where in the repository a file of the site is."""
    return site_path.removeprefix("tree/") if site_path.startswith("tree/") else f"docs/{site_path}"


def site_path(repository: str) -> str:
    """Where on the site a file of the repository is."""
    return repository.removeprefix("docs/") if repository.startswith("docs/") else f"tree/{repository}"


def targets(page: str) -> set[str]:
    """Repository paths of the files to which a page links."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), match[2])) for match in LINK.finditer(text)}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    waiting = [*ALWAYS, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            fresh = {target for target in targets(path) - known if (ROOT / target).is_file()}
            known |= fresh
            waiting += sorted(fresh)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(here)), match[2]))
        if not (ROOT / target).is_file():
            return match[0]  # mkdocs will say so
        return match[1] + posixpath.relpath(site_path(target), posixpath.dirname(here) or ".") + match[3]

    return LINK.sub(moved, markdown)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return html.replace("<p>::</p>\n", "")  # of docstrings: the mark before an indented block
