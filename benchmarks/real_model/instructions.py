"""Instructions for the real model: of eight kinds, those that are measured and those that train.

    python -m benchmarks.real_model.instructions

writes `instructions.json`, those that are measured. Documents and code in them are excerpts of the
standard library of the Python that runs this; the file was written with 3.11.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import random
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
FILE = HERE / "instructions.json"
EACH = 48
"""Instructions of a kind that are measured."""
HELD_OUT = 5
"""One of so many entries of a list, and of documents, is for the measured ones."""
_MODULES = """
    abc argparse ast asyncio.base_events asyncio.events asyncio.locks base64 bdb bisect bz2
    calendar cgi cmd code codecs collections colorsys configparser contextlib copy csv ctypes
    dataclasses datetime decimal difflib dis doctest email.message email.utils enum filecmp
    fileinput fnmatch fractions ftplib functools getopt getpass gettext glob gzip hashlib heapq
    hmac html html.parser http.client http.cookies imaplib inspect io ipaddress json
    json.decoder json.encoder keyword linecache locale logging logging.handlers lzma mailbox
    mimetypes netrc nntplib numbers operator optparse os pathlib pdb pickle pickletools platform
    plistlib poplib posixpath pprint profile pstats pyclbr pydoc queue quopri random re reprlib
    runpy sched secrets selectors shelve shlex shutil signal smtplib socket socketserver sqlite3
    ssl statistics string stringprep subprocess sysconfig tarfile telnetlib tempfile textwrap
    threading timeit token tokenize trace traceback types typing unittest.case unittest.mock
    urllib.parse urllib.request urllib.robotparser uuid warnings wave weakref webbrowser
    xml.dom.minidom xml.etree.ElementTree xmlrpc.client zipapp zipfile
""".split()
Make = Callable[["Drawer"], list[str]]
"""Draws the turns of an instruction."""


class Instruction(msgspec.Struct, frozen=True):
    """Holds the turns of a user; the model's own answers stand between them."""

    kind: str
    turns: tuple[str, ...]


class Drawer:
    """Draws from the lists and documents of one side: what is measured, or what trains."""

    def __init__(self, measured: bool, seed: int) -> None:
        self.measured = measured
        self.random = random.Random(seed)
        self.words: dict[str, dict[str, list[Any]]] = msgspec.yaml.decode(
            (HERE / "words.yaml").read_bytes()
        )

    def mine(self, entries: list[Any], part: int = HELD_OUT) -> list[Any]:
        """Return this side's entries."""
        return [each for at, each in enumerate(entries) if (at % part == 0) == self.measured]

    def any(self, kind: str, name: str, whole: bool = False) -> Any:
        """Draw an entry; `whole` of lists that may be common, as forms."""
        entries = self.words[kind][name]
        return self.random.choice(entries if whole else self.mine(entries))

    def document(self, documents: list[str]) -> str:
        """Draw a document."""
        chosen = [
            each
            for each in documents
            if (zlib.crc32(each.encode()) % HELD_OUT == 0) == self.measured
        ]
        return self.random.choice(chosen)

    def number(self, low: int, high: int) -> int:
        """Draw a number."""
        return self.random.randint(low, high)


@functools.cache
def functions() -> list[str]:
    """Functions of the standard library of 5 to 30 lines."""
    found = []
    for module in _MODULES:
        source = _source(module)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
                text = inspect.cleandoc("\n".join(["", *lines]))
                if 5 <= len(lines) <= 30 and 150 <= len(text) <= 900 and text.isascii():
                    found.append(text)
    return sorted(set(found))


@functools.cache
def documents() -> list[str]:
    """Docstrings of the standard library, and pieces of the language reference, as paragraphs."""
    from pydoc_data.topics import topics

    texts = list(topics.values())
    for module in _MODULES:
        for node in ast.walk(ast.parse(_source(module))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                texts.append(ast.get_docstring(node) or "")
    found = []
    for text in texts:
        piece = ""
        for paragraph in text.split("\n\n"):
            piece = f"{piece}\n\n{paragraph.strip()}".strip()
            if len(piece) >= 700:
                break
        words = piece.lower()
        if 450 <= len(piece) <= 1500 and piece.isascii() and "copyright" not in words:
            found.append(piece)
    return sorted(set(found))


@functools.cache
def _source(module: str) -> str:
    place = Path(sysconfig.get_path("stdlib"), *module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def _chat(draw: Drawer) -> list[str]:
    if draw.random.random() < (0.25 if draw.measured else 0.1):
        return [draw.any("chat", "questions")]
    return [draw.any("chat", "forms", whole=True).format(topic=draw.any("chat", "topics"))]


def _code(draw: Drawer) -> list[str]:
    return [draw.any("code", "forms", whole=True).format(task=draw.any("code", "tasks"))]


def _edit(draw: Drawer) -> list[str]:
    wish = draw.any("edit", "wishes", whole=True)
    source = draw.document(functions())
    return [draw.any("edit", "forms", whole=True).format(wish=wish, source=source)]


def _summary(draw: Drawer) -> list[str]:
    return [draw.any("summary", "forms", whole=True).format(text=draw.document(documents()))]


def _story(draw: Drawer) -> list[str]:
    who = draw.any("story", "who")
    parts = {"who": who, "Who": who[0].upper() + who[1:], "does": draw.any("story", "does")}
    form = draw.any("story", "forms", whole=True)
    return [form.format(**parts, where=draw.any("story", "where"))]


def _sums(draw: Drawer) -> list[str]:
    a, b = draw.random.sample(draw.mine(draw.words["sums"]["names"]), 2)
    return [
        draw.any("sums", "forms", whole=True).format(
            a=a,
            b=b,
            things=draw.any("sums", "things", whole=True),
            x=draw.number(20, 99),
            y=draw.number(5, 40),
            z=draw.number(2, 12),
            big=draw.number(5, 40) * 20,
            h=draw.number(6, 20),
        )
    ]


def _extract(draw: Drawer) -> list[str]:
    words = draw.words["extract"]
    p, p2 = draw.random.sample(draw.mine(words["people"]), 2)
    c, c2 = draw.random.sample(draw.mine(words["places"]), 2)
    keys, text = draw.any("extract", "texts", whole=True)
    told = text.format(
        p=p,
        p2=p2,
        c=c,
        c2=c2,
        t=draw.any("extract", "things"),
        mo=draw.any("extract", "months", whole=True),
        n=draw.number(2, 25),
        m=draw.number(30, 950),
        d=draw.number(1, 14),
        e=draw.number(15, 28),
        h=draw.number(8, 19),
    )
    return [draw.any("extract", "ask", whole=True).format(keys=keys, text=told)]


def _talk(draw: Drawer) -> list[str]:
    first, follow = (_code, "code_follow") if draw.random.random() < 0.35 else (_chat, "follow")
    if draw.random.random() < 0.15:
        first = _summary
    more = draw.random.sample(draw.words["talk"][follow], 2)
    return [*first(draw), *more]


KINDS: dict[str, Make] = {
    "chat": _chat,
    "code": _code,
    "edit": _edit,
    "extract": _extract,
    "summary": _summary,
    "sums": _sums,
    "story": _story,
    "talk": _talk,
}


def drawn(kind: str, *, measured: bool, seed: int) -> Iterator[Instruction]:
    """Draw instructions of a kind without end; none comes twice, and none is on both sides."""
    draw = Drawer(measured, zlib.crc32(f"{kind} {measured} {seed}".encode()))
    seen = set()
    while True:
        turns = tuple(KINDS[kind](draw))
        if turns not in seen:
            seen.add(turns)
            yield Instruction(kind, turns)


def measured() -> list[Instruction]:
    """Read the instructions that are measured, `EACH` of a kind."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Instruction])


def main() -> None:
    """Write the instructions that are measured."""
    made = [
        each
        for kind in KINDS
        for each in itertools.islice(drawn(kind, measured=True, seed=0), EACH)
    ]
    lines = ",\n".join(json.dumps(msgspec.to_builtins(each)) for each in made)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
