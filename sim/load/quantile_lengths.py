"""Lengths by inverse quantiles, per client, from a ServeGen length table.

Columns: ``client,field,sum_rate_rps_over_windows,windows,mean,q1,...,q100`` with a row for
``input_tokens`` and one for ``output_tokens`` of each client; a quantile column is named by its
percentage. Prompt and output lengths of a client are drawn independently: the source publishes
no joint law.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.text_file import MOST_TOKENS, Row, header_of, table_rows
from adaptive_spec.step import FloatArray

FIELDS = ("input_tokens", "output_tokens")
_WEIGHT = "sum_rate_rps_over_windows"
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class QuantileLaw:
    """A law of lengths given by quantiles and, if known, its mean.

    Between quantiles lengths are linear in probability. Over the last piece, whose end is the
    maximum, that would put far too many tokens into the tail, so there the length is
    q_a + (q_b - q_a) t^power, with the power that makes the mean of the law the stated one.

    Attributes:
        levels: [Q] probabilities, ascending, the last one 1.
        tokens: [Q] the quantiles, ascending.
        power: see above; 1 is linear.
    """

    levels: FloatArray
    tokens: FloatArray
    power: float

    @classmethod
    def with_mean(cls, levels: FloatArray, tokens: FloatArray, mean: float) -> QuantileLaw:
        """The law whose mean comes as close to `mean` as its last piece allows."""
        weights = np.diff(levels, prepend=0.0)
        below = np.concatenate([tokens[:1], tokens[:-1]])
        body = float(((below + tokens) / 2 * weights)[:-1].sum())
        tail_mean = (mean - body) / weights[-1] if weights[-1] > 0 else float(tokens[-1])
        rise, above = float(tokens[-1] - below[-1]), tail_mean - float(below[-1])
        # The mean of t^power over 0..1 is 1 / (power + 1).
        power = rise / above - 1 if above > 0 else np.inf
        return cls(levels, tokens, float(np.clip(power, 0.0, 1e3)))

    def at(self, probability: FloatArray) -> FloatArray:
        """[n] lengths at probabilities 0..1, not rounded."""
        tokens: FloatArray = np.interp(probability, self.levels, self.tokens)
        start, end = float(self.levels[-2]), float(self.levels[-1])
        tail = probability > start
        if tail.any():
            along = (probability[tail] - start) / (end - start)
            low, high = float(self.tokens[-2]), float(self.tokens[-1])
            tokens[tail] = low + (high - low) * along**self.power
        return tokens


class ClientLengths:
    """Lengths of one client, or of several mixed request by request.

    Args:
        prompts: [n] law of prompt lengths of each client.
        outputs: [n] law of output lengths, in the same order.
        weights: [n] how often each client is drawn.
    """

    def __init__(
        self,
        prompts: Sequence[QuantileLaw],
        outputs: Sequence[QuantileLaw],
        weights: Sequence[float],
    ) -> None:
        self._laws = list(zip(prompts, outputs, strict=True))
        self._shares = np.array(weights, dtype=np.float64)
        self._shares /= self._shares.sum()

    def pairs(self, random: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Endless (prompt tokens, output tokens), each >= 1."""
        while True:
            pair = np.empty((2, _BLOCK))
            who = random.choice(len(self._laws), size=_BLOCK, p=self._shares)
            probability = random.uniform(size=(2, _BLOCK))
            for client in np.unique(who):
                mine = who == client
                for field, law in enumerate(self._laws[client]):
                    pair[field, mine] = law.at(probability[field, mine])
            rounded = np.rint(pair).clip(1).astype(np.int64)
            yield from zip(*rounded.tolist(), strict=True)


def read_quantile_lengths(path: Path) -> tuple[dict[str, ClientLengths], ClientLengths]:
    """Lengths of each client, and of all of them mixed in proportion to their rates.

    Raises DataError with file and row, also for quantiles that fall and for a client with only
    one of its two rows.
    """
    columns = _quantile_columns(path)
    levels = np.array([int(column[1:]) / 100 for column in columns])
    laws: dict[str, dict[str, QuantileLaw]] = {}
    weights: dict[str, float] = {}
    for row in table_rows(path, ("client", "field", _WEIGHT, "mean", *columns)):
        client, field = row.values["client"].strip(), row.values["field"].strip()
        if field not in FIELDS:
            row.wrong(f"`field` is {field!r}, not input_tokens or output_tokens")
        if field in laws.setdefault(client, {}):
            row.wrong(f"a second row for {field} of client {client!r}")
        laws[client][field] = _law(row, columns, levels)
        weights[client] = row.real(_WEIGHT)
    for client, fields in laws.items():
        for field in FIELDS:
            if field not in fields:
                raise DataError(f"{path}: client {client!r} has no row for {field}")
    if not sum(weights.values()):
        raise DataError(f"{path}: `{_WEIGHT}` is 0 everywhere")
    prompts = {client: fields[FIELDS[0]] for client, fields in laws.items()}
    outputs = {client: fields[FIELDS[1]] for client, fields in laws.items()}
    each = {client: ClientLengths([prompts[client]], [outputs[client]], [1.0]) for client in laws}
    pooled = ClientLengths(list(prompts.values()), list(outputs.values()), list(weights.values()))
    return each, pooled


def _quantile_columns(path: Path) -> list[str]:
    found = [name for name in header_of(path) if name[:1] == "q" and name[1:].isdigit()]
    percentages = [int(name[1:]) for name in found]
    if len(found) < 2 or percentages != sorted(set(percentages)) or percentages[-1] != 100:
        raise DataError(
            f"{path}, row 1: expected quantile columns that ascend to q100: q1,...,q100"
        )
    return found


def _law(row: Row, columns: Sequence[str], levels: FloatArray) -> QuantileLaw:
    tokens = [row.real(column) for column in columns]
    for earlier, later in zip(range(len(tokens)), range(1, len(tokens)), strict=False):
        if tokens[later] < tokens[earlier]:
            row.wrong(f"`{columns[later]}` is below `{columns[earlier]}`")
    if tokens[-1] > MOST_TOKENS:
        row.wrong(f"`q100` is more than {MOST_TOKENS:,} tokens")
    return QuantileLaw.with_mean(levels, np.array(tokens), row.real("mean"))
