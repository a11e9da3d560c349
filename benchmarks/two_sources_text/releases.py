"""Two releases of Python packages under permissive licences, read from their wheels."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.bench_pair.training.standard_library import docstrings

VERSIONS = {
    "attrs": ("22.1.0", "23.2.0"),
    "click": ("8.0.4", "8.1.7"),
    "flask": ("2.1.3", "3.0.3"),
    "httpx": ("0.24.1", "0.27.2"),
    "jinja2": ("3.0.3", "3.1.4"),
    "networkx": ("3.1", "3.3"),
    "packaging": ("21.3", "24.1"),
    "pytest": ("7.2.2", "8.2.2"),
    "requests": ("2.27.1", "2.32.3"),
    "rich": ("12.6.0", "13.7.1"),
    "starlette": ("0.27.0", "0.37.2"),
    "urllib3": ("1.26.18", "2.2.2"),
    "werkzeug": ("2.2.3", "3.0.3"),
}
"""BSD, MIT or Apache-2.0. An older and a newer release."""
DATA = ("vega-datasets", "0.9.0")
"""MIT; tables."""
LONGEST_MODULE = 120_000
SHORTEST_PARAGRAPH = 140


@dataclass(frozen=True)
class Module:
    """A module in both releases.

    Attributes:
        path: inside the wheel.
        old, new: source; `old` is "" where the older release lacks it.
    """

    path: str
    old: str
    new: str

    def share(self, parts: int) -> int:
        """A number below `parts` that the path decides: text for one kind is none for others."""
        return hashlib.sha256(self.path.encode()).digest()[0] % parts

    @cached_property
    def paragraphs(self) -> list[str]:
        """Paragraphs of its docstrings that are prose, a line each."""
        try:
            text = docstrings(self.new)
        except SyntaxError:
            return []
        found = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text)]
        return [each for each in found if is_prose(each)]


def is_prose(paragraph: str) -> bool:
    """Long enough, nearly all letters, and sentences."""
    letters = sum(each.isalpha() or each in " ,." for each in paragraph)
    plain = letters > 0.93 * len(paragraph) and paragraph[0].isupper()
    return len(paragraph) >= SHORTEST_PARAGRAPH and plain and paragraph.endswith(".")


def sentences(paragraph: str) -> list[str]:
    """Split at full stops."""
    return [each.strip() for each in re.split(r"(?<=[.:?])\s+(?=[A-Z])", paragraph) if each.strip()]


def download(folder: Path) -> None:
    """Get all wheels from the package index; those at hand are kept."""
    for number, name in enumerate(("old", "new")):
        wanted = [f"{package}=={pair[number]}" for package, pair in VERSIONS.items()]
        if name == "new":
            wanted.append("==".join(DATA))
        if len(list((folder / name).glob("*.whl"))) < len(wanted):
            options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]
            command = [sys.executable, "-m", "pip", "download", *options, str(folder / name)]
            subprocess.run([*command, *wanted], check=True)


def read_modules(folder: Path) -> dict[str, list[Module]]:
    """ASCII modules of each package, by path; no tests."""
    old, new = (_sources(folder / name) for name in ("old", "new"))
    return {
        package: [
            Module(path, old.get(package, {}).get(path, ""), source)
            for path, source in sorted(new[package].items())
        ]
        for package in VERSIONS
    }


def _sources(folder: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        package = wheel.name.partition("-")[0].lower()
        with zipfile.ZipFile(wheel) as archive:
            for path in archive.namelist():
                if not path.endswith(".py") or re.search(r"(^|/)(tests?|_vendor)/", path):
                    continue
                source = archive.read(path).decode("utf-8", errors="replace")
                if source.isascii() and len(source) < LONGEST_MODULE and _parses(source):
                    found.setdefault(package, {})[path.removeprefix("src/")] = source
    return found


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
