"""Time of prompts that comes with every step, whatever is drafted.

A request brings its prompt once. Where drafts end it in fewer steps, prompts come in fewer steps,
too, so that their time is a cost per token and is no part of the choice of K. But drafts leave two
of a request's steps as they are: that of its prompt, and at least one that decodes. Of a request
that lives n steps the share min(2 / n, 1) of its prompt is a cost per step. With answers of a few
tokens it is nearly all of it, and makes drafts cheap.

Requests that arrive by themselves with long prompts (Azure's code) need it, as those that decode
wait for the others' prompts in each of their steps. Where a constant number of clients ask for
answers of a few tokens, it costs throughput (the judge's cells of short answers).
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import highest_of, integers
from adaptive_spec.step import IntArray, StepOutcome

_FIXED_STEPS = 2.0
"""Steps of a request that no draft saves."""
_RATE = 1.0 / 64.0
"""Weight of a new step, and of a request that ends, in the averages."""

_MOST_UNCOUNTED = 16
"""Steps whose requests are counted together."""
_RECENT_STEPS = 8
"""Steps for which prompts that came speak of more."""


class PromptShare:
    """Mean prompt tokens per step, and the share of them that drafts do not spread out.

    Attributes:
        tokens: prompt tokens per step that come whatever is drafted.
        recent: prompts have come lately, so that more are likely to.
    """

    def __init__(self) -> None:
        self._steps = integers(0)
        self._uncounted: list[IntArray] = []
        self._mean = self._waiting = self._share = 0.0
        self._without = _RECENT_STEPS
        self.tokens, self.recent = 0.0, False

    def add_step(self, outcome: StepOutcome) -> None:
        """Average the prompt tokens of a step; those of steps without decoding join the next."""
        self._waiting += outcome.prefill_tokens
        self._without = 0 if outcome.prefill_tokens else self._without + 1
        self.recent = self._without < _RECENT_STEPS
        if outcome.batch_size:
            self._uncounted.append(outcome.slots)
            if len(self._uncounted) >= _MOST_UNCOUNTED:
                self._count()
            self._mean += _RATE * (self._waiting - self._mean)
            self._waiting = 0.0
            self.tokens = self._share * self._mean

    def ended(self, slots: IntArray) -> None:
        """Take up that requests have ended."""
        self._count()
        for steps in self._steps[slots].tolist():
            # The step of the prompt emits the first token and is not among those that decode.
            self._share += _RATE * (min(_FIXED_STEPS / (1.0 + steps), 1.0) - self._share)
        self._steps.reset(slots)
        self.tokens = self._share * self._mean

    def _count(self) -> None:
        if self._uncounted:
            slots, self._uncounted = np.concatenate(self._uncounted), []
            np.add.at(self._steps.reaching(highest_of(slots)), slots, 1)
