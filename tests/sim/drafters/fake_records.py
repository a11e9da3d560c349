"""Fake hardware and fake acceptance data for the drafters' tests."""

from dataclasses import replace

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.sim.hardware.profile_file import MeasuredDraft
from tests.sim.acceptance.fake_records import data_of as acceptance
from tests.sim.small_server import PlainHardware


class FakeHardware(PlainHardware):
    """An 8B-shaped target whose every cost is linear, so that prices can be told by hand."""

    def __init__(
        self,
        weight_bytes: float = 16.06e9,
        layers: int = 32,
        measured: dict[str, MeasuredDraft] | None = None,
    ) -> None:
        super().__init__(fixed=6e-3)
        self.weight_bytes, self.layers, self.measured = weight_bytes, layers, measured or {}

    def pass_with_overhead(self, *sizes: int) -> float:
        return self.verify_seconds(*sizes)

    def pass_seconds(self, share: float, batch_size: int, context_tokens: int) -> float:
        return share * self.verify_seconds(batch_size, batch_size, context_tokens, 0, 0)

    def measured_draft(self, drafter: str) -> MeasuredDraft | None:
        return self.measured.get(drafter)


def chain_data(
    hazards: tuple[float, ...],
    positions: int = 4000,
    record: int = 100,
    seed: int = 20_240_401,  # not one that shaping is tested with: draws must be independent
    label: str = "",
) -> AcceptanceData:
    """Independent draws: position j is accepted with hazards[j], given those before it."""
    random = np.random.default_rng(seed)
    right = random.random((positions, len(hazards))) < np.array(hazards)
    accepted = np.cumprod(right, axis=1).sum(axis=1)
    return data_of(accepted.tolist(), record, len(hazards), label)


def data_of(
    accepted: list[int], record: int, depth: int, label: str = "", name: str = "made up"
) -> AcceptanceData:
    """Records of equal length from accepted drafts by position; a look-up has the same right."""
    records = [accepted[at : at + record] for at in range(0, len(accepted), record)]
    made = acceptance(*records, depth=depth, name=name)
    lookup = LookedUp(np.array(accepted, dtype=np.uint8))
    return replace(made, lookup=lookup, labels=(label,) * len(records))


def accepted_by_tree(data: AcceptanceData, nodes: int) -> np.ndarray:
    """[P] what a step accepts that verifies so many nodes everywhere."""
    assert data.tree_sizes is not None
    return (data.tree_sizes <= nodes).sum(axis=1)


def mean_emitted(accepted: np.ndarray, offsets: np.ndarray) -> float:
    """Tokens per step, walking each record from step to step."""
    steps = tokens = 0
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        position = begin
        while position < end:
            emitted = int(accepted[position]) + 1
            steps, tokens, position = steps + 1, tokens + emitted, position + emitted
    return tokens / steps
