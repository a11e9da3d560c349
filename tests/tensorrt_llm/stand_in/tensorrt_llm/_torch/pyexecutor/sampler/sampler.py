"""State of results on their way from the device to the requests."""

from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class SampleState:
    requests: list
    device: Any = None
    host: Any = None


class TorchSampler:
    @dataclass(kw_only=True)
    class Args:
        max_seq_len: int
        max_draft_len: int
        max_num_sequences: int
        max_total_draft_tokens: int
