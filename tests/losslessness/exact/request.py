"""One request of the small world: exact laws of what it drafts and of what it emits.

Verification is rejection sampling with the residual distribution, and a bonus token after the last
accepted draft (Leviathan et al., arXiv 2211.17192, algorithm 1), or that of whole blocks, where a
later draft may save an earlier one (Sun et al., arXiv 2403.10444, algorithm 2).
"""

import functools
import itertools
from typing import Literal, NamedTuple

import numpy as np

from adaptive_spec.step import FloatArray
from tests.losslessness.exact.models import TOKENS, Model, Prefix

EOS = 0
INVALID = 2
"""The token that a grammar rules out."""

Copies = Literal["", "one-hot", "judged by q"]
"""Whether drafts are looked up, too, and how verification takes them: as what they are, or,
wrongly, as if the drafter had drawn them."""
_COPIED_IF = 0.5
"""Probability of the target's likeliest token from which it is looked up."""

Drafting = Literal["sampled", "greedy", "greedy, judged by q"]
"""Drafts are drawn from q, or are q's likeliest token; the latter are verified as what they are, a
distribution with all its weight on one token, or, wrongly, as if they had been drawn from q."""


class Emitted(NamedTuple):
    """Prefix after a round, and how many drafts were accepted in it."""

    prefix: Prefix
    accepted: int


class Rules(NamedTuple):
    """What the engine does with drafted tokens, whatever the policy says.

    Attributes:
        depth: drafts of a round, Kmax; one token more is compared.
        drafting: how drafts are chosen and verified.
        eos: token 0 ends the output; a drafted one is verified and nothing after it, or left out.
        grammar: a drafted token 2 is left out (its q isn't masked).
        capped: a request verifies no more drafts than it can use.
        copies: drafts that are looked up; none by default.
        blocks: drafts are verified as a block.
    """

    depth: int = 2
    drafting: Drafting = "sampled"
    eos: Literal["", "verified", "left out"] = ""
    grammar_drops: bool = False
    capped: bool = False
    copies: Copies = ""
    blocks: bool = False


DRAWN_AND_VERIFIED = Rules()
"""Nothing in the way of what the policy says."""


class Request:
    """Exact laws of one request.

    Args:
        model: p and q.
        rules: of the engine.
    """

    def __init__(self, model: Model, rules: Rules = DRAWN_AND_VERIFIED) -> None:
        self.model = model
        self.rules = rules
        self.length = rules.depth + 1
        """Output tokens that are compared: as many as a round can emit."""
        # By instance, so that the caches end with it.
        self.drafts = functools.cache(self._drafts)
        self.copied = functools.cache(self._copied)
        self.continued = functools.cache(self._continued)
        self.emitted = functools.cache(self._emitted)

    def _drafts(self, prefix: Prefix) -> tuple[tuple[Prefix, float], ...]:
        """Every draft of full depth, with its probability."""
        found = []
        for drafts in itertools.product(range(TOKENS), repeat=self.rules.depth):
            chance = 1.0
            for j, token in enumerate(drafts):
                chance *= self._drawn_from(prefix + drafts[:j])[token]
            if chance > 0.0:
                found.append((drafts, float(chance)))
        return tuple(found)

    def usable(self, prefix: Prefix, drafts: Prefix) -> int:
        """Drafts that the engine would verify, before any policy is asked."""
        limit = self.rules.depth
        if self.rules.eos and EOS in drafts:
            limit = drafts.index(EOS) + (self.rules.eos == "verified")
        if self.rules.grammar_drops and INVALID in drafts:
            limit = min(limit, drafts.index(INVALID))
        if self.rules.capped:
            limit = min(limit, self.length - len(prefix) - 1)
        return limit

    def _copied(self, prefix: Prefix) -> Prefix:
        """Drafts that are looked up for this text: the target's likeliest, while it is sure."""
        drafts: Prefix = ()
        while self.rules.copies and len(drafts) < self.rules.depth:
            target = self.model.target[prefix + drafts]
            if target.max() < _COPIED_IF:
                break
            drafts = (*drafts, int(np.argmax(target)))
        return drafts

    def match(self, prefix: Prefix) -> int:
        """A length of the match that found them; the text alone decides it."""
        return round(8 * float(self.model.target[prefix].max())) if self.copied(prefix) else 0

    def agreed(self, prefix: Prefix, after: Prefix) -> int:
        """Leading copied drafts that a round has emitted, which led from one text to the other."""
        pairs = zip(self.copied(prefix), after[len(prefix) :], strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    def ended(self, prefix: Prefix) -> bool:
        """Nothing more is emitted that is compared."""
        return len(prefix) >= self.length or (bool(self.rules.eos) and EOS in prefix)

    def _emitted(
        self, prefix: Prefix, drafts: Prefix, k: int, copied: bool = False
    ) -> dict[Emitted, float]:
        """Law of a round that verifies the first k drafts, of the drafter or looked up."""
        if copied:
            drafts = self.copied(prefix)
        if self.rules.blocks:
            return self._emitted_of_block(prefix, drafts[:k], copied=copied)
        law: dict[Emitted, float] = {}
        reached, current = 1.0, prefix
        for j in range(k):
            target, proposed = self.model.target[current], self._judged_by(current)
            token = drafts[j]
            if copied and self.rules.copies == "one-hot":
                proposed = np.eye(TOKENS)[token]
            accepted = min(1.0, target[token] / proposed[token])
            residual = np.maximum(target - proposed, 0.0)
            if residual.sum() > 0.0:
                for other, share in enumerate(residual / residual.sum()):
                    law[Emitted((*current, other), j)] = reached * (1.0 - accepted) * share
            reached *= accepted
            current = (*current, token)
        for token, share in enumerate(self.model.target[current]):
            law[Emitted((*current, token), k)] = reached * share
        return {each: chance for each, chance in law.items() if chance > 0.0}

    def _emitted_of_block(
        self, prefix: Prefix, drafts: Prefix, *, copied: bool
    ) -> dict[Emitted, float]:
        """Likewise of all these drafts, as a block.

        r_j is the ratio that the first j drafts have kept, r_j = min(1, r_(j-1) p(x_j) / q(x_j)).
        The first j are accepted for themselves with h_j; the longest that are, are kept.
        """
        k, ratio = len(drafts), 1.0
        residuals, accepted = [], []
        for j in range(k + 1):
            current = prefix + drafts[:j]
            target = self.model.target[current]
            if j == k:
                accepted.append(ratio)
                residuals.append(target)
                break
            proposed = self._judged_by(current)
            if copied and self.rules.copies == "one-hot":
                proposed = np.eye(TOKENS)[drafts[j]]
            residual = np.maximum(ratio * target - proposed, 0.0)
            mass = float(residual.sum())
            kept = mass + 1.0 - ratio
            accepted.append(mass / kept if kept > 0.0 else 1.0)
            residuals.append(residual / mass if mass > 0.0 else target)
            ratio = min(1.0, ratio * float(target[drafts[j]] / proposed[drafts[j]]))
        law: dict[Emitted, float] = {}
        longer = 1.0  # chance that no longer block was accepted
        for j in range(k, -1, -1):
            share = longer * (accepted[j] if j else 1.0)
            longer -= share
            for token, chance in enumerate(residuals[j]):
                law[Emitted((*prefix, *drafts[:j], token), j)] = share * float(chance)
        return {each: chance for each, chance in law.items() if chance > 0.0}

    def _continued(self, prefix: Prefix) -> FloatArray:
        """[27] law of the output if it begins with `prefix` and the target goes on from there."""
        law = np.zeros((TOKENS,) * self.length)
        if self.rules.eos and EOS in prefix:
            whole = prefix[: prefix.index(EOS)] + (EOS,) * self.length
            law[whole[: self.length]] = 1.0
        elif len(prefix) >= self.length:
            law[prefix[: self.length]] = 1.0
        else:
            for token, share in enumerate(self.model.target[prefix]):
                if share > 0.0:
                    law += share * self.continued((*prefix, token)).reshape(law.shape)
        return law.ravel()

    def _drawn_from(self, prefix: Prefix) -> FloatArray:
        """The distribution a draft is drawn from."""
        said = self.model.draft[prefix]
        if self.rules.drafting == "sampled":
            return said
        likeliest: FloatArray = np.eye(TOKENS)[int(np.argmax(said))]
        return likeliest

    def _judged_by(self, prefix: Prefix) -> FloatArray:
        """The distribution that verification takes a draft to be drawn from."""
        if self.rules.drafting == "greedy":
            return self._drawn_from(prefix)
        return self.model.draft[prefix]
