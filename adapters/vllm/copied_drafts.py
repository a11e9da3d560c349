"""Looked-up drafts in the worker: in the drafter's place, and as a distribution.

With asynchronous scheduling, and on model runner V2 always, the drafts of a step are on the device,
and the host looks text up without the tokens of the step under way. It sends what it expects after
the text that it knows: the tokens under way first, then drafts. Where the device has emitted what
was expected, what follows takes the place of the drafter's drafts; elsewhere the drafter's stay.

Which drafts are verified thus depends on emitted tokens alone. Where drafts are sampled, a copied
draft is a distribution with all its weight on one token.

Every function is put on an object of vLLM's, never on its classes. After a fault, said once,
the drafter's drafts are verified; the scheduler finds that out by what is accepted.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

_LOG = logging.getLogger("vllm.adaptive_spec")

MESSAGE = "adaptive_spec_copied"
"""On `SchedulerOutput`: `Copied` of the step."""

ONE_HOT = "adaptive_spec_one_hot"
"""On `DraftTokenIds`: true if the worker makes copied drafts one-token distributions."""


class Copied(NamedTuple):
    """Requests that verify looked-up drafts in a step.

    Attributes:
        names: [R] which.
        known: [R] tokens of each that the host knew.
        tokens: [R] what it expects to follow: tokens under way, then drafts. Empty where the
            scheduler itself has put the drafts in their place.
    """

    names: Sequence[str]
    known: Sequence[int]
    tokens: Sequence[Sequence[int]]


def copies_for(runner: Any) -> Copies:
    """Make `Copies` for a model runner. Raises AttributeError for an unknown form of runner."""
    return CopiesV2(runner) if hasattr(runner, "req_states") else CopiesV1(runner)


class Copies(abc.ABC):
    """Copies drafts on one model runner."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.works = True
        """Nothing has failed."""

    def before(self, copied: Copied | None) -> None:
        """Before a step: put copied drafts where the runner will look for its drafter's."""
        try:
            self._place(copied)
        except Exception as error:  # the scheduler sees that nothing is copied
            if self.works:
                self.works = False
                _LOG.warning(
                    "adaptive_spec: drafts are not copied: %s: %s", type(error).__name__, error
                )

    @abc.abstractmethod
    def _place(self, copied: Copied | None) -> None:
        """Make room for the most drafts a step may verify, then copy."""


class CopiesV2(Copies):
    """Copies drafts on model runner V2, whose device holds all text."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self._states = runner.req_states
        self._kmax = int(self._states.num_speculative_steps)

    def _place(self, copied: Copied | None) -> None:
        if copied is None:
            return
        states, device = self._states, self._runner.device
        index_of = states.req_id_to_index
        there = [row for row, name in enumerate(copied.names) if name in index_of]
        if not there:
            return
        index = _on(device, [index_of[copied.names[row]] for row in there])
        # Beyond the depth that was drafted the runner leaves -1, which is no token to embed.
        states.draft_tokens[index] = own = states.draft_tokens[index].clamp(min=0)
        known = _on(device, [copied.known[row] for row in there])[:, None]
        total, text = states.total_len.gpu[index][:, None], states.all_token_ids.gpu
        places = known + _range(device, self._kmax + 1)
        emitted = text[index[:, None], places.clamp(max=text.shape[1] - 1)].long()
        emitted = emitted.where(places < total, -1)
        expected = _padded(device, [copied.tokens[row] for row in there], self._kmax)
        states.draft_tokens[index], _ = following(expected, emitted, own)


class CopiesV1(Copies):
    """Copies drafts on model runner V1, which is shown what each step emits."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self._kmax = int(runner.num_spec_tokens)
        self._emitted: tuple[list[str], Any] | None = None
        """Requests of the last step, and what each emitted, [R, W], -1 beyond."""
        self._taken: dict[str, Any] = {}
        """Request -> which of its drafts are copied, [Kmax]; None: all."""
        kind = type(runner)
        for name in ("propose_draft_token_ids", "_get_spec_decode_draft_probs"):
            getattr(kind, name)  # AttributeError now, not in a step
        runner.propose_draft_token_ids = self._propose
        runner._get_spec_decode_draft_probs = self._probabilities

    def _place(self, copied: Copied | None) -> None:
        import torch

        (held, self._emitted), self._taken = (self._emitted, None), {}
        if copied is None:
            return
        if not any(copied.tokens):
            self._taken = dict.fromkeys(copied.names)
            return
        runner = self._runner
        drafts = runner._draft_token_ids
        if not torch.is_tensor(drafts):
            return
        wide = drafts.new_zeros(len(drafts), self._kmax)
        wide[:, : drafts.shape[1]] = drafts
        runner._draft_token_ids, runner.prev_num_spec_tokens = wide, self._kmax
        # Penalties of any request make the runner read as many of the drafts' copy on the host.
        host = runner.draft_token_ids_cpu
        if host is not None:
            host[: len(drafts), drafts.shape[1] :] = 0
        if held is None:
            return
        row_of = {name: row for row, name in enumerate(held[0])}
        there = [place for place, name in enumerate(copied.names) if name in row_of]
        if not there:
            return
        names = [copied.names[place] for place in there]
        rows = _on(wide.device, [row_of[name] for name in names])
        expected = _padded(wide.device, [copied.tokens[place] for place in there], self._kmax)
        found, taken = following(expected, held[1][rows].long(), wide[rows].long())
        wide[rows] = found.to(wide.dtype)
        self._taken = dict(zip(names, taken, strict=True))

    def _propose(self, output: Any, sampled_token_ids: Any, *more: Any, **named: Any) -> Any:
        """Keep what the step has emitted."""
        runner = self._runner
        if hasattr(sampled_token_ids, "device"):
            self._emitted = (list(runner.input_batch.req_ids), sampled_token_ids)
        # OFF-cold has its hook on the class.
        own = type(runner).propose_draft_token_ids
        return own(runner, output, sampled_token_ids, *more, **named)

    def _probabilities(self, metadata: Any) -> Any:
        """Distributions of the drafts, [drafts, vocabulary]; None: all weight on the draft."""
        runner = self._runner
        made, names = runner._draft_probs, runner._draft_prob_req_ids
        if not self._taken or made is None or names is None:
            return type(runner)._get_spec_decode_draft_probs(runner, metadata)
        row_of = {name: row for row, name in enumerate(names)}
        drafts = metadata.draft_token_ids.long()[:, None]
        # vLLM fills up an admitted request's drafts with -1, which no distribution has.
        weight = (drafts >= 0).to(made.dtype)
        found = made.new_zeros(len(drafts), made.shape[-1])
        found.scatter_(1, drafts.clamp(min=0), weight)
        start = 0
        for name, count in zip(runner.input_batch.req_ids, metadata.num_draft_tokens, strict=False):
            row, taken = row_of.get(name), self._taken.get(name, False)
            sampled = min(count, made.shape[1])
            if sampled and row is not None and taken is not None:
                here, own = found[start : start + sampled], made[row, :sampled]
                here.copy_(own if taken is False else here.where(taken[:sampled, None], own))
            start += count
        return found


def following(expected: Any, emitted: Any, own: Any) -> tuple[Any, Any]:
    """Take what follows the emitted tokens in the expected text; elsewhere keep the own drafts.

    Args:
        expected: [R, 2 Kmax + 1] tokens, -1 beyond.
        emitted: [R, W] tokens of the step before, -1 beyond; W is at most Kmax + 1.
        own: [R, Kmax] drafts.

    Returns drafts [R, Kmax], and [R, Kmax] which of them are copied.
    """
    shown = emitted >= 0
    as_expected = ((expected[:, : emitted.shape[1]] == emitted) | ~shown).all(1, keepdim=True)
    places = shown.sum(1, keepdim=True) + _range(own.device, own.shape[1])
    follow = expected.gather(1, places)
    taken = as_expected & (follow >= 0)
    return follow.where(taken, own.clamp(min=0)), taken


def _padded(device: Any, tokens: Sequence[Sequence[int]], kmax: int) -> Any:
    width = 2 * kmax + 1
    return _on(device, [[*row[:width], *[-1] * (width - len(row))] for row in tokens])


def _range(device: Any, count: int) -> Any:
    import torch

    return torch.arange(count, device=device)


def _on(device: Any, values: Sequence[Any]) -> Any:
    """Whole numbers on the device, without waiting for it."""
    import torch

    held = torch.tensor(values, dtype=torch.int64, pin_memory=device.type == "cuda")
    return held.to(device, non_blocking=True)
