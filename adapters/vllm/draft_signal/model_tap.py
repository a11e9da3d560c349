"""Confidence and entropy of a drafter with a model, from the logits it samples from.

The drafter's logits live inside one pass. Its methods are wrapped on the object, never on vLLM's
class: `compute_logits` shows them, `_sample_draft_tokens` is one draft position, `propose` is one
round. Where drafts are sampled (``draft_sample_method: probabilistic``) vLLM returns the very
distribution; else it is the softmax of the logits, at temperature 1.

On a GPU the values are copied to pinned memory on the stream on which vLLM copies the draft tokens,
before them. With synchronous scheduling, whoever waits for the tokens has waited for the values;
with asynchronous scheduling a round that is not there yet is left out. No synchronisation is added.
Not executed on a GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from adaptive_spec.adapters.vllm.draft_signal.tap import Round, Tap, sent_to_host
from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals, Wanted

_ROUNDS_ON_THEIR_WAY = 3
"""With asynchronous scheduling two steps are under way, and one is being read."""
_SLICE_ROWS = 32


class ModelTap(Tap):
    """Watches the drafter of one V1 model runner."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self._runner = runner
        self._logits: Any = None
        self._passes: list[Any] = []
        self._round: Round | None = None
        self._buffers: deque[Any] = deque()
        drafter = runner.drafter
        self._watch_logits(drafter.model)
        self._watch_positions(drafter)
        self._watch_rounds(drafter)

    def take_signals(self) -> Callable[[], DraftSignals | None] | None:
        """The last round, once: what reads its values when they are wanted; None without one."""
        held, self._round = self._round, None
        return None if held is None else held.signals

    def _watch_logits(self, model: Any) -> None:
        own = model.compute_logits

        def compute_logits(*args: Any, **kwargs: Any) -> Any:
            logits = own(*args, **kwargs)
            self._logits = logits if self.wanted else None
            return logits

        model.compute_logits = compute_logits

    def _watch_positions(self, drafter: Any) -> None:
        own = drafter._sample_draft_tokens

        def sample(*args: Any, **kwargs: Any) -> Any:
            made = own(*args, **kwargs)
            logits, self._logits = self._logits, None
            if logits is not None:
                self.read(self._read_pass, logits, made[1])
            return made

        drafter._sample_draft_tokens = sample

    def _watch_rounds(self, drafter: Any) -> None:
        own = drafter.propose

        def propose(*args: Any, **kwargs: Any) -> Any:
            self._passes, self._round = [], None
            drafts = own(*args, **kwargs)
            if self._passes:
                self.read(self._keep, drafts)
            return drafts

        drafter.propose = propose

    def _read_pass(self, logits: Any, distribution: Any) -> None:
        only = self.wanted == Wanted.CONFIDENCE
        self._passes.append(_in_slices(logits, distribution, only_confidence=only))

    def drop(self) -> None:
        """Forget the round."""
        self._round, self._passes = None, []

    def _keep(self, drafts: Any) -> None:
        """Put the passes of a round together, [2, R, D], and send them to the host."""
        import torch

        rows, depth = drafts.shape
        values = torch.stack(self._passes, dim=-1).reshape(2, rows, depth)
        names = tuple(self._runner.input_batch.req_ids[:rows])
        if not values.is_cuda:
            self._round = Round(names, values, None)
            return
        host = self._buffer(rows, depth, values.dtype)
        stream = self._runner.draft_token_ids_copy_stream or torch.cuda.current_stream()
        self._round = sent_to_host(names, values, stream, host)

    def _buffer(self, rows: int, depth: int, dtype: Any) -> Any:
        """Pinned memory, [2, rows, depth]. Used in turn: several rounds may be on their way."""
        import torch

        if not self._buffers:
            most = 2 * self._runner.max_num_reqs * self._runner.num_spec_tokens
            for _ in range(_ROUNDS_ON_THEIR_WAY):
                self._buffers.append(torch.empty(most, dtype=dtype, pin_memory=True))
        self._buffers.rotate()
        # Contiguous: a strided copy from the device would go through pageable memory, and wait.
        return self._buffers[0][: 2 * rows * depth].view(2, rows, depth)


def _in_slices(logits: Any, distribution: Any, *, only_confidence: bool = False) -> Any:
    """`_certainty`, a few rows at a time: vLLM has not planned for much memory of ours."""
    import torch

    rows = range(0, len(logits), _SLICE_ROWS)
    read = _confidence if only_confidence else _certainty
    parts = [
        read(
            logits[row : row + _SLICE_ROWS],
            None if distribution is None else distribution[row : row + _SLICE_ROWS],
        )
        for row in rows
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _confidence(logits: Any, distribution: Any) -> Any:
    """Return what `_certainty` returns, with the entropy unknown."""
    import torch

    values = logits.new_full((2, len(logits)), torch.nan, dtype=torch.float32)
    if distribution is None:
        distribution = torch.softmax(logits, dim=-1, dtype=torch.float32)
    values[0] = distribution.amax(dim=-1)
    return values


def _certainty(logits: Any, distribution: Any) -> Any:
    """Maximum probability and entropy in nats, [2, rows], on the device."""
    import torch

    if distribution is None:
        logarithms = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        distribution = logarithms.exp()
        # 0 log 0 is 0: a token that is ruled out adds nothing.
        entropy = -torch.linalg.vecdot(distribution, logarithms.clamp_min_(-1e4))
    else:
        entropy = torch.special.entr(distribution).sum(dim=-1)
    return torch.stack((distribution.amax(dim=-1), entropy))
