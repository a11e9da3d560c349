"""Composed sessions of an agent: its calls and remarks, between output of tools.

Listings, numbered lines, diffs and edits are of real releases; the calls are ours. Each turn of the
agent is a request, whose prompt is the session so far.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterator

from benchmarks.two_sources_text.code import Edit, edits
from benchmarks.two_sources_text.releases import Module
from benchmarks.two_sources_text.sample import Sample

EDITED_LINES = 10
LISTED = 14
TASK = 'Bring this part of the package up to date. Call a tool as {"tool": NAME, "arguments": {}}.'


def sessions(packages: dict[str, list[Module]], random_: random.Random) -> Iterator[Sample]:
    """Turns of sessions, each with one edit of one module."""
    found = [
        (modules, module, edit)
        for modules in packages.values()
        for module in modules
        if module.old and module.share(4) == 1
        for edit in edits(module, EDITED_LINES)
    ]
    random_.shuffle(found)
    for modules, module, edit in found:
        session = f"{TASK}\nPackage: {module.path.partition('/')[0]}\n\n"
        for answer, output in turns(modules, module, edit, random_):
            yield Sample("agent", session, answer)
            session += f"{answer}\n{output}\n\n"


def turns(
    modules: list[Module], module: Module, edit: Edit, random_: random.Random
) -> Iterator[tuple[str, str]]:
    """Yield each text that the agent writes, with the answer of the tool."""
    folder, path = module.path.rpartition("/")[0], edit.path
    last = edit.first + len(edit.old) - 1
    start = max(0, min(modules.index(module) - LISTED // 2, len(modules) - LISTED))
    listed = [f"{len(m.old):8d} {m.path}" for m in modules[start : start + LISTED] if m.old]
    yield _call("list_files", path=folder), "\n".join(listed)

    lines = module.old.splitlines()
    shown = {"path": path, "first": max(edit.first - 4, 1), "last": last + 4}
    yield f"I will read {path}.\n" + _call("read_file", **shown), _numbered(lines, **shown)

    old, new = "\n".join(edit.old), "\n".join(edit.new)
    diff = difflib.unified_diff(edit.old, edit.new, path, path, lineterm="")
    remark = random_.choice(module.paragraphs or [f"I will replace lines {edit.first} to {last}."])
    yield f"{remark}\n" + _call("edit_file", path=path, old=old, new=new), "\n".join(diff)

    after = [*lines[: edit.first - 1], *edit.new, *lines[last:]]
    shown["last"] += len(edit.new) - len(edit.old)
    yield f"I will look at {path} again.\n" + _call("read_file", **shown), _numbered(after, **shown)

    changed = [line.strip() for line in edit.new if line not in edit.old and line.strip()]
    told = "\n".join(f"- `{line}`" for line in changed)
    yield f"{path} is up to date from line {edit.first} on. These lines are new:\n{told}\n", ""


def _call(tool: str, **arguments: object) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def _numbered(lines: list[str], path: str, first: int, last: int) -> str:
    shown = enumerate(lines[first - 1 : last], first)
    return "\n".join([path, *(f"{number:5d}  {line}" for number, line in shown)])
