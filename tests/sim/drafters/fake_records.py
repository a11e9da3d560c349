"""Fake hardware and fake acceptance data for the drafters' tests."""

from dataclasses import dataclass, field

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.sim.hardware.profile_file import MeasuredDraft


@dataclass
class FakeHardware:
    """An 8B-shaped target whose every cost is linear, so that prices can be told by hand."""

    name: str = "made-up"
    source: str = "made up"
    memory_bytes: float = 80e9
    weight_bytes: float = 16.06e9
    kv_bytes_per_token: float = 131072.0
    layers: int = 32
    token_buckets: tuple[int, ...] = ()
    outside_graph_seconds: float = 0.0
    verify_per_context_token: float = 0.0
    any_draft: float = 0.0
    any_draft_per_request: float = 0.0
    measured: dict[str, MeasuredDraft] = field(default_factory=dict)

    def verify_seconds(
        self,
        batch_size: int,
        batch_tokens: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        return 6e-3 + 2e-5 * (batch_tokens + prefill_tokens) + 4e-8 * context_tokens

    pass_with_overhead = verify_seconds

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
    offsets = np.arange(0, len(accepted) + 1, record)
    records = len(offsets) - 1
    return AcceptanceData(
        name=name,
        source="made up",
        accepted=np.array(accepted, dtype=np.uint8),
        lookup=LookedUp(np.array(accepted, dtype=np.uint8)),
        offsets=offsets,
        prompt_tokens=np.zeros(records, dtype=np.int64),
        labels=(label,) * records,
        depth=depth,
    )


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
