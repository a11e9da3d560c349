"""Code that is written anew, and code that is edited: the older release is in the prompt."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.two_sources_text.releases import Module
from benchmarks.two_sources_text.sample import Sample

WINDOW_LINES = 34
LEAST_CHANGED, MOST_CHANGED = 0.04, 0.5
"""Share of the lines of a window that are new, or gone."""
COMPLETED_FROM = 40
"""Lines of a module before the answer."""


class Edit(NamedTuple):
    """Lines of a module before and after a release.

    Attributes:
        path: of the module.
        first: number of the first old line.
        old, new: the lines.
    """

    path: str
    first: int
    old: list[str]
    new: list[str]


def edits(module: Module, lines: int = WINDOW_LINES) -> Iterator[Edit]:
    """Windows with so many unchanged lines, and changes between them; they don't overlap."""
    old, new = module.old.splitlines(), module.new.splitlines()
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    kept = [(i, j) for tag, i, e, j, _ in opcodes if tag == "equal" for i, j in _pairs(i, e, j)]
    end = 0
    for (i, j), (after_i, after_j) in zip(kept, kept[lines:], strict=False):
        if j < end or after_j - j > 2 * lines or after_i - i > 2 * lines:
            continue
        changed = 1.0 - lines / max(after_i - i, after_j - j)
        if LEAST_CHANGED <= changed <= MOST_CHANGED:
            end = after_j
            yield Edit(module.path, i + 1, old[i:after_i], new[j:after_j])


def _pairs(i: int, end: int, j: int) -> Iterator[tuple[int, int]]:
    return zip(range(i, end), range(j, j + end - i), strict=True)


def edited(modules: list[Module], random_: random.Random) -> Iterator[Sample]:
    """Answers that repeat the old code with the changes of the new release."""
    found = [each for module in modules if module.old for each in edits(module)]
    random_.shuffle(found)
    for each in found:
        old, new = "\n".join(each.old), "\n".join(each.new)
        prompt = f"Update this part of {each.path}:\n```python\n{old}\n```\n\n```python\n"
        yield Sample("edit", prompt, new + "\n```\n")


def completed(modules: list[Module], random_: random.Random) -> Iterator[Sample]:
    """The next lines of a module, after those before."""
    order = list(modules)
    random_.shuffle(order)
    for module in order:
        lines = module.new.splitlines(keepends=True)
        if len(lines) < COMPLETED_FROM + 2 * WINDOW_LINES:
            continue
        at = random_.randrange(COMPLETED_FROM, len(lines) - WINDOW_LINES - 10)
        before = "".join(lines[at - COMPLETED_FROM : at])
        yield Sample("code", f"# {module.path}\n{before}", "".join(lines[at : at + 60]))
