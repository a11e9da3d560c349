"""The drafter's certainty about its first draft, read at draft-extend.

SGLang keeps no draft probabilities at top-k 1; the logits exist for a moment at the end of a
step, when draft-extend computes the distribution of the next step's first draft. They are caught
there; maximum probability and entropy are what `StepContext` wants for position 1. Deeper positions
stay unknown.

With overlap scheduling the next step is planned before the GPU has got there. Then the value is
late: it is not waited for, and not used for a later round, whose drafts it does not describe. With
sampled drafts (`speculative_use_rejection_sampling`) it is not read at all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.step import FloatArray

_LOG = logging.getLogger("sglang.adaptive_spec")


class Certainty(NamedTuple):
    """Certainty about the drafts of the coming step before they are made.

    Attributes:
        confidence: [B, Kmax] maximum probability; nan where unknown.
        entropy: [B, Kmax] entropy in nats; nan where unknown.
    """

    confidence: FloatArray
    entropy: FloatArray


class ConfidenceTap:
    """Reader of the logits of draft-extend, for the next plan.

    Attributes:
        late: plans for which the values came too late.
    """

    def __init__(self) -> None:
        self._extending = False
        self._caught: Any = None
        self._names: list[str] = []
        self._values: Any = None
        self._ready: Any = None
        self.late = 0

    def watch(self, draft_worker: Any) -> None:
        """Wrap the draft runner's forward pass, on the object: it notes the last output.

        Only during draft-extend: what is noted while drafting would keep its memory.
        """
        runner = draft_worker.draft_runner
        own = runner.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            output = own(*args, **kwargs)
            if self._extending:
                self._caught = getattr(output, "logits_output", None)
            return output

        runner.forward = forward

    def watch_graphs(self, graph_runner: Any) -> None:
        """Wrap the captured draft-extend likewise; SGLang has one such runner per K."""
        if graph_runner is None or getattr(graph_runner, "_adaptive_spec_watched", False):
            return
        own = graph_runner.execute

        def execute(*args: Any, **kwargs: Any) -> Any:
            output = own(*args, **kwargs)
            if self._extending:
                self._caught = output
            return output

        graph_runner.execute = execute
        graph_runner._adaptive_spec_watched = True

    def before_extend(self) -> None:
        """Start to note outputs: draft-extend begins."""
        self._caught, self._extending = None, True

    def after_extend(self, batch: Any) -> None:
        """Compute the certainty from one row of logits per request: draft-extend has run."""
        caught, self._caught, self._extending = self._caught, None, False
        self._values = None
        logits = getattr(caught, "next_token_logits", None)
        if logits is None or logits.shape[0] != len(batch.reqs):
            return
        import torch

        logarithms = torch.log_softmax(logits.float(), dim=-1)
        probabilities = logarithms.exp()
        # 0 log 0 is 0: a token that is ruled out adds nothing.
        entropy = -(probabilities * logarithms.nan_to_num(neginf=0.0)).sum(dim=-1)
        values = torch.stack((probabilities.max(dim=-1).values, entropy))
        self._names = [request.rid for request in batch.reqs]
        if values.is_cuda:
            self._values = values.to("cpu", non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record()
        else:
            self._values, self._ready = values, None

    def for_plan(self, requests: Sequence[Any], kmax: int) -> Certainty | None:
        """Return the certainty for the batch about to run; None if it has not arrived in time."""
        values, self._values = self._values, None
        if values is None:
            return None
        if self._ready is not None and not self._ready.query():
            self.late += 1
            if self.late == 1:
                _LOG.info("adaptive_spec: confidence comes too late for the next step at times")
            return None
        columns = zip(*values.tolist(), strict=True)
        by_name = dict(zip(self._names, columns, strict=True))
        unknown = (np.nan, np.nan)
        found = np.array([by_name.get(r.rid, unknown) for r in requests]).reshape(-1, 2)
        certainty = Certainty(*np.full((2, len(requests), kmax), np.nan))
        certainty.confidence[:, 0], certainty.entropy[:, 0] = found.T
        return certainty
