"""Small target and draft models whose every probability is known.

Three tokens. A table gives the distribution of the next token after a prefix: p of the target, q of
the drafter.
"""

import itertools
from typing import NamedTuple, Protocol

import numpy as np

from adaptive_spec.step import FloatArray

TOKENS = 3

Prefix = tuple[int, ...]


class Table(Protocol):
    """[3] distribution of the next token, by prefix."""

    def __getitem__(self, prefix: Prefix, /) -> FloatArray: ...


class Model(NamedTuple):
    """What one request's text is drawn from."""

    target: Table
    draft: Table


class LastTokenTable:
    """A table that looks at the last token only, so that text can go on for ever.

    Args:
        rows: [3, 3] distribution after each token.
        first: what the empty prefix counts as.
    """

    def __init__(self, rows: FloatArray, first: int) -> None:
        self._rows = rows
        self._first = first

    def __getitem__(self, prefix: Prefix, /) -> FloatArray:
        row: FloatArray = self._rows[prefix[-1] if prefix else self._first]
        return row


def prefixes(longest: int) -> list[Prefix]:
    """Every prefix of up to so many tokens, the shortest first."""
    lengths = range(longest + 1)
    return [each for size in lengths for each in itertools.product(range(TOKENS), repeat=size)]


def random_model(random: np.random.Generator) -> Model:
    """Targets from a Dirichlet(.6); drafters half like them, half another such distribution."""
    known = prefixes(7)
    drawn = random.dirichlet([0.6] * TOKENS, size=2 * len(known)).reshape(-1, 2, TOKENS)
    target = drawn[:, 0]
    draft = 0.5 * target + 0.5 * drawn[:, 1]
    return Model(dict(zip(known, target, strict=True)), dict(zip(known, draft, strict=True)))


def without_token(table: Table, token: int) -> Table:
    """The table under a grammar that never allows one token."""
    allowed = np.arange(TOKENS) != token
    return {each: table[each] * allowed / table[each][allowed].sum() for each in prefixes(7)}


def confident_rows(skill: float) -> tuple[FloatArray, FloatArray]:
    """p and q [3, 3] by last token: q is sure and right after 0 and 1, unsure and wrong after 2.

    Args:
        skill: 0..1, how near the target is to the drafter where that is sure.
    """
    draft = np.array([[0.06, 0.86, 0.08], [0.86, 0.06, 0.08], [0.28, 0.34, 0.38]])
    other = np.array([[0.50, 0.10, 0.40], [0.20, 0.30, 0.50], [0.05, 0.15, 0.80]])
    near = np.array([skill, skill, 0.1])[:, None]
    return near * draft + (1.0 - near) * other, draft


def confident_model(skill: float, first: int) -> Model:
    """Those rows as a model; `first` is the token before the output."""
    target, draft = confident_rows(skill)
    return Model(LastTokenTable(target, first), LastTokenTable(draft, first))
