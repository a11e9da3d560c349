"""Hooks of the documentation site (mkdocs.yml)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Pages of the site that are files of the checkout's top folder."""

TO_DOCS = re.compile(r"\]\(docs/")
OF_THE_CHECKOUT = re.compile(r"\[`?([^]`]+)`?\]\((adapters/[^)#]+|[A-Z]+(?:\.md)?)[^)]*\)")
OUTSIDE = re.compile(r"\[`?([^]`]+)`?\]\(\.\./([^)#]+)[^)]*\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside docs/."""
    for page, source in PAGES.items():
        text = TO_DOCS.sub("](", (ROOT / source).read_text("utf-8"))
        text = text.replace("](CHANGELOG.md)", "](changelog.md)")
        text = text.replace("](CONTRIBUTING.md)", "](contributing.md)")
        text = OF_THE_CHECKOUT.sub(lambda link: f"`{link[2]}`", text)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show a link to a file of the checkout as its path: the site does not hold that file.

    Names of the Python API rank below headings of the pages for users in the site's search.
    """
    if page.file.src_uri == "architecture.md":
        page.meta["search"] = {"boost": 0.2}
    markdown = markdown.replace("](../CONTRIBUTING.md", "](contributing.md")
    return OUTSIDE.sub(lambda link: f"`{link[2]}`", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search dialog, for those who hear the page."""
    return output.replace(
        'component="search" role="dialog"', 'component="search" role="dialog" aria-label="Search"'
    )
