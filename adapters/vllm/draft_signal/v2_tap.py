"""Confidence and entropy of a drafter with a model, on model runner V2.

There the draft loop may be a captured CUDA graph, into which nothing of Python's gets. vLLM has a
place in it: `DraftModelSpeculator.acceptance_estimator`, which is shown the logits of each draft
position and, with ``enable_adaptive_verification``, fits acceptance to them. We never act where
that is set, so the place is free, and an object of ours that only reads takes it, on the
speculator, never on its class, before anything is captured. vLLM's trimming stays off: the model
runner asks a flag that was set from the configuration for that, not this object.

What is read is a function of the distribution, never of the token that was drawn. Where drafts are
sampled it is the distribution that they are drawn from, at the request's temperature; else it is
the softmax of the logits, at temperature 1.

vLLM's results leave before its drafts are made, and with synchronous scheduling, too, the scheduler
gets placeholders while a GPU may still be drafting. So the values of a round are copied on a stream
of their own and go with the results of the step that has verified the drafts: by then they are
there, and nothing is waited for. On a CPU, which is done when vLLM goes on, synchronous scheduling
gets them with the drafts. Which way they go never depends on how long drafting took: a plan may
not know that. Not executed on a GPU; the kernel compiles for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adaptive_spec.adapters.vllm.draft_signal.tap import Round, Tap, sent_to_host
from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals


class V2Tap(Tap):
    """Watches the speculator of one V2 model runner. Entropy always comes along."""

    def __init__(self, runner: Any) -> None:
        import torch

        super().__init__()
        self._round: Round | None = None
        self._awaiting: Round | None = None
        self._stream: Any = None
        speculator = runner.speculator
        self._depth = int(speculator.num_speculative_steps)
        self._sampled = speculator.draft_logits is not None
        room = (2, int(speculator.max_num_reqs), self._depth)
        self._shown = torch.full(room, torch.nan, dtype=torch.float32, device=speculator.device)
        # Scheduling ahead, vLLM fetches drafts for grammars only, past the scheduler's hook.
        ahead = bool(runner.vllm_config.scheduler_config.async_scheduling)
        self._in_time = not ahead and self._shown.device.type == "cpu"
        self._watch_rounds(speculator)
        speculator.acceptance_estimator = self

    def predict(
        self,
        logits: Any,
        idx_mapping: Any,
        draft_step: Any,
        confidence_probs: Any,
        temperature: Any,
    ) -> None:
        """Called by vLLM for each draft position, also while it captures a graph.

        Args:
            logits: [R, V] of the drafter.
            idx_mapping: [R] the requests' rows in `temperature`.
            draft_step: the position, on the device.
            confidence_probs: where vLLM's own estimator writes; nobody reads it.
            temperature: of all requests.
        """
        del confidence_probs
        self.read(self._write, logits, idx_mapping, draft_step, temperature)

    def _write(self, logits: Any, idx_mapping: Any, draft_step: Any, temperature: Any) -> None:
        if not self.wanted and not _captures(logits):
            return
        # More rows than requests: a drafter of several positions a pass, which isn't followed.
        if draft_step.dim() or len(logits) > self._shown.shape[1]:
            return
        from adaptive_spec.adapters.vllm.draft_signal.certainty_kernel import write_certainty

        write_certainty(
            self._shown, logits, idx_mapping, temperature, draft_step, sampled=self._sampled
        )

    def step(self, idx_mapping: Any, num_sampled: Any, num_rejected: Any) -> None:
        """Called by vLLM with what was accepted: the scheduler learns from it."""

    def take_signals(self) -> Callable[[], DraftSignals | None] | None:
        """Return the signals of the round of these draft tokens, if they arrive in time."""
        if not self._in_time:
            return None
        held, self._awaiting = self._awaiting, None
        return None if held is None else held.signals

    def take_verified(self) -> Callable[[], DraftSignals | None] | None:
        """Return the signals of the round that a step has verified, unless they are gone.

        To be called once per step, after its drafts are made.
        """
        held, self._awaiting, self._round = self._awaiting, self._round, None
        return None if held is None else held.verified_signals

    def _watch_rounds(self, speculator: Any) -> None:
        own = speculator.propose

        def propose(input_batch: Any, *args: Any, **kwargs: Any) -> Any:
            drafts = own(input_batch, *args, **kwargs)
            if self.wanted and not kwargs.get("dummy_run"):
                self.read(self._keep, input_batch, kwargs.get("num_speculative_tokens"))
            return drafts

        speculator.propose = propose

    def _keep(self, input_batch: Any, drafted: int | None) -> None:
        """Send the values of a round to the host."""
        rows = int(input_batch.num_reqs)
        depth = self._depth if drafted is None else min(int(drafted), self._depth)
        if not depth:
            return
        names = tuple(input_batch.req_ids[:rows])
        # A copy, in order with the passes: the next round overwrites what they wrote.
        values = self._shown[:, :rows, :depth].clone()
        if not values.is_cuda:
            self._round = Round(names, values, None)
            return
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream(values.device)
        self._round = sent_to_host(names, values, self._stream)

    def drop(self) -> None:
        """Forget the rounds."""
        self._round = self._awaiting = None


def _captures(logits: Any) -> bool:
    """A graph is being captured: what is left out of it now would be missing in every replay."""
    import torch

    return bool(logits.is_cuda and torch.cuda.is_current_stream_capturing())


def shows_certainty(speculator: Any) -> bool:
    """Does a speculator show its logits, and is the place free where it shows them?"""
    return (
        getattr(speculator, "acceptance_estimator", speculator) is None
        # Tensor-parallel ranks then exchange the best token only.
        and not speculator.use_local_argmax_reduction
    )
