"""What mkdocs asks of this project: pages and figures made from the code, and links that leave the documentation.

`mkdocs build --strict` at the root of the repository; nothing is fetched, and what is generated is never committed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import architecture
import cases
import catalogs
import figures
import formulas
import history
import reference
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+|examples/)([\w./-]+)\)")
FROM_ROOT = re.compile(r"\]\(docs/")
COPIED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add every generated page and picture."""
    made = {
        **reference.pages(),
        **formulas.pages(),
        **catalogs.pages(),
        **cases.pages(ROOT),
        **history.pages(ROOT),
        **architecture.pages(ROOT),
        **figures.pictures(ROOT),
    }
    for name, source in COPIED.items():
        made[name] = FROM_ROOT.sub("](", (ROOT / source).read_text("utf-8"))
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Files of the repository that are no pages are named, not linked."""

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[2], link[3]))
        known = files.get_file_from_path(target.removeprefix("docs/"))
        return link.group() if known and target.startswith("docs/") else f"{link[1]} (`{target}`)"

    return OUTSIDE.sub(named, markdown)
