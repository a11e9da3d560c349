"""Every number of `policies/` that has a name is in scripts/constants.yaml, with unit and reason.

Value and meaning come from the code. Numbers that follow from others, and versions of formats, are
left out.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[2]
POLICIES, DESCRIPTIONS = ROOT / "policies", ROOT / "scripts" / "constants.yaml"
MOST = 80
"""Numbers that the policies may have."""
_NO_NUMBERS = ("SCHEMA",)


class Constant(NamedTuple):
    """A number with a name."""

    file: str
    name: str
    value: str
    meaning: str


def constants() -> list[Constant]:
    """Every constant, by file in the order of the code."""
    files = sorted(POLICIES.rglob("*.py"), key=lambda file: (len(file.parts), file))
    return [each for file in files for each in _of(file)]


def descriptions() -> dict[str, dict[str, tuple[str, str]]]:
    """Unit, and what pays, by file and name."""
    kind = dict[str, dict[str, tuple[str, str]]]
    return msgspec.yaml.decode(DESCRIPTIONS.read_bytes(), type=kind)


def _of(file: Path) -> Iterator[Constant]:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for place, node in enumerate(body):
        if not isinstance(node, ast.Assign) or not _is_number(node.value):
            continue
        [target] = node.targets
        names, values = [target], [node.value]
        if isinstance(target, ast.Tuple):
            if not isinstance(node.value, ast.Tuple):
                continue  # places in an array
            names, values = target.elts, node.value.elts
        follows = body[place + 1] if place + 1 < len(body) else None
        meaning = ""
        if isinstance(follows, ast.Expr) and isinstance(follows.value, ast.Constant):
            meaning = " ".join(str(follows.value.value).split())
        for name, value in zip(names, values, strict=True):
            assert isinstance(name, ast.Name)
            if name.id.isupper() and name.id not in _NO_NUMBERS:
                shown = ast.unparse(value.args[0] if isinstance(value, ast.Call) else value)
                yield Constant(
                    file.relative_to(POLICIES).as_posix(),
                    name.id,
                    shown.replace("**", "^").replace("*", "x"),
                    meaning,
                )


def _is_number(node: ast.expr) -> bool:
    """Numbers only: nothing that follows from another constant."""
    allowed = {"n", "np", "range"}
    leaves = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    numbers = all(isinstance(each.value, int | float) for each in leaves)
    return bool(leaves) and numbers and set(names) <= allowed


def test_each_number_is_described_and_each_description_has_its_number() -> None:
    described = {(file, name) for file, each in descriptions().items() for name in each}
    assert {(each.file, each.name) for each in constants()} == described
    assert all(unit and pays for each in descriptions().values() for unit, pays in each.values())


def test_each_number_says_what_it_means() -> None:
    assert [each for each in constants() if not each.meaning] == []


def test_there_are_no_more_than_there_may_be() -> None:
    assert len(constants()) <= MOST
