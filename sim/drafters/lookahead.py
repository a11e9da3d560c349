"""Lookahead decoding: the target guesses n-grams by itself, in the same pass that verifies them.

Every pass computes a window of W columns of N - 1 tokens (the n-grams of later steps) and up to G
guesses of N - 1 tokens that begin with the last token. K is the length to which guesses are
verified; the window and the other guesses ride along as extra tokens.

Nobody has published its acceptance position by position, so the n-gram list stands in. That is
right on average over Spec-Bench (see `source`) but not for each task: guesses come from the model,
not from the prompt, so the gain is understated where little is copied and overstated where much is.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import Drafter, limited_to

Size = Annotated[int, msgspec.Meta(ge=1, le=256)]


class Lookahead(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No pass of its own and no weights; the price is a wider target pass.

    Attributes:
        window: W.
        ngram: N.
        guesses: G.
    """

    window: Size = 15
    ngram: Annotated[int, msgspec.Meta(ge=2, le=32)] = 5
    guesses: Size = 15

    name: ClassVar[str] = "lookahead"
    source: ClassVar[str] = (
        "Lookahead decoding, arXiv 2402.02057; hao-ai-lab/LookaheadDecoding: W 15, N 5, G 15 for "
        "7B on A100. Acceptance follows the n-gram list: on Spec-Bench both methods emit as much "
        "per step (Vicuna-7B: 1.64 lookahead, 1.73 prompt lookup)"
    )
    # At K = 0 the window is left out: the next guesses come from n-grams found before.
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False
    acceptance_list: ClassVar[str] = "ngram"

    def extra_tokens(self, k: int) -> int:
        """W (N - 1) of the window and K of each guess but the one counted as drafts."""
        if k == 0:
            return 0
        return self.window * (self.ngram - 1) + (self.guesses - 1) * min(k, self.ngram - 1)

    def most_drafts(self, depth: int) -> int:
        """A guess has N - 1 tokens."""
        return min(depth, self.ngram - 1)

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """At most N - 1 are accepted."""
        return limited_to(data, self.ngram - 1)
