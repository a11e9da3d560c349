"""Leaving the draft loop of a V1 drafter before its end: the drafter's half of `early_exit`.

`SpecDecodeBaseProposer.propose` calls `_sample_draft_tokens` last in each pass, outside of any
context that it sets, and reads nothing in between but what it stacks at the end (0.32:
v1/spec_decode/llm_base_proposer.py:648-774). So an exception out of that call, caught around
`propose`, leaves drafter, buffers and attention metadata as a round of so many passes does, and
the answer is the same stack: draft tokens, and the distributions they were drawn from.

The answer is made before the loop is left. Whatever fails until then, the loop runs on.
"""

from __future__ import annotations

from typing import Any

from adaptive_spec.adapters.vllm.draft_signal.early_exit import DraftRound, of_engine


class LoopEnded(Exception):  # noqa: N818 - it is no error
    """No request is worth another pass. Raised and caught within one call of `propose`."""


class DraftLoop:
    """The loop of one V1 model runner's drafter."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._instance_id = str(runner.vllm_config.instance_id)
        self._round: DraftRound | None = None
        self._tokens: list[Any] = []
        self._distributions: list[Any] = []
        self._answer: Any = None

    def begins(self, *args: Any, **kwargs: Any) -> None:
        """A round begins: `propose` is called with these arguments."""
        self.over()
        found = of_engine(self._instance_id)
        if found is None:
            return
        try:
            depth = args[0] if args else kwargs["num_speculative_tokens"]
            self._round = found.begin(self._runner.input_batch.req_ids, int(depth))
        except Exception as error:
            self.failed(error)

    def ends(self, made: tuple[Any, Any], certainty: Any) -> bool:
        """Is the loop to be left after this pass?

        Args:
            made: draft tokens [R], and the distributions they were drawn from, [R, V] or None.
            certainty: [2, R] maximum probability and entropy, on the host.
        """
        asked = self._round
        if asked is None:
            return False
        try:
            tokens, distribution = made
            self._tokens.append(tokens)
            self._distributions.append(distribution)
            if asked.goes_on(certainty.double().numpy()) or asked.passes >= asked.depth:
                return False
            self._answer = (_stacked(self._tokens), _stacked(self._distributions))
            return True
        except Exception as error:
            self.failed(error)
            return False

    def answer(self) -> Any:
        """What `propose` would have returned for the passes that ran: [R, passes]."""
        tokens, self._runner.drafter._last_draft_probs = self._answer
        return tokens

    def over(self) -> None:
        """The round has ended, however it did."""
        self._round = self._answer = None
        self._tokens, self._distributions = [], []

    def failed(self, error: Exception) -> None:
        """Nobody is asked any more; what was asked about runs to its end."""
        asked, self._round = self._round, None
        if asked is not None:
            asked.abandon()
        found = of_engine(self._instance_id)
        if found is not None:
            found.failed(error)


def _stacked(parts: list[Any]) -> Any:
    """[R, passes, ...] as `propose` stacks them; None if there is nothing to stack."""
    import torch

    if parts[0] is None:
        return None
    return torch.stack(parts, dim=1).contiguous()
