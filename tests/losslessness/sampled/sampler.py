"""A speculative sampler over three tokens for a big batch, and direct sampling beside it.

Each request goes on for ever; p and q know its last token and its kind. A draw is one round: K_i
drafts are verified, and three tokens emitted, what verification left out from the target. The
output that is compared are the first two: the third comes from the target whatever K_i is.
Looked-up drafts, where there are any, are the target's likeliest tokens.
"""

from typing import NamedTuple

import numpy as np

from adaptive_spec.step import BoolArray, FloatArray, IntArray
from tests.losslessness.exact.joint_law import Shown
from tests.losslessness.exact.models import TOKENS, confident_rows
from tests.losslessness.exact.request import Copies
from tests.losslessness.exact.season import SKILLS
from tests.losslessness.exact.server import Said, Server

DEPTH = 2
LENGTH = DEPTH + 1
OUTPUTS = TOKENS**DEPTH
KINDS = len(SKILLS)
ROWS = KINDS * TOKENS
"""What the law of an output depends on: the request's kind and its last token."""


class Draws(NamedTuple):
    """What was drawn.

    Attributes:
        row: [plans, B] kind and last token before the output.
        output: [plans, B] the first two tokens, as a number below 9.
        verified: [plans, B] K_i.
        copied: [plans, B] requests that verified looked-up drafts.
    """

    row: IntArray
    output: IntArray
    verified: IntArray
    copied: BoolArray


class Sampler:
    """Rounds of a big batch.

    Args:
        server: decides K.
        shown: what it is shown as confidence.
        seed: of everything that is drawn here.
        copies: drafts that are looked up.
    """

    def __init__(
        self, server: Server, *, shown: Shown = "maximum", seed: int = 0, copies: Copies = ""
    ) -> None:
        self._server = server
        self._copies: Copies = copies
        self._shown: Shown = shown
        self._random = np.random.default_rng(seed)
        rows = [confident_rows(skill) for skill in SKILLS]
        self._target: FloatArray = np.concatenate([target for target, _ in rows])
        self._likeliest: IntArray = self._target.argmax(axis=1)
        self._draft: FloatArray = np.concatenate([draft for _, draft in rows])
        self._entropy: FloatArray = -(self._draft * np.log(self._draft)).sum(axis=1)
        batch = len(server.alive)
        self._kind: IntArray = np.arange(batch) % KINDS
        self._last: IntArray = np.zeros(batch, dtype=np.int64)

    def draws(self, plans: int) -> Draws:
        """So many rounds."""
        rounds = [self._round() for _ in range(plans)]
        return Draws(*(np.array(each) for each in zip(*rounds, strict=True)))

    def direct(self, row: IntArray) -> IntArray:
        """Outputs for the same rows, from the target alone."""
        kind, last = np.divmod(row.ravel(), TOKENS)
        output: IntArray = np.zeros_like(last)
        for _ in range(DEPTH):
            last = self._token(self._target[kind * TOKENS + last])
            output = output * TOKENS + last
        return output.reshape(row.shape)

    def _round(self) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
        kind = self._kind
        row = kind * TOKENS + self._last
        states, drafts = [row], []
        for _ in range(DEPTH):
            drafts.append(self._token(self._draft[states[-1]]))
            states.append(kind * TOKENS + drafts[-1])
        laws = [self._draft[state] for state in states[:-1]]
        if self._shown == "token":
            confidence = [_at(q, x) for q, x in zip(laws, drafts, strict=True)]
        else:
            confidence = [q.max(axis=1) for q in laws]
        entropy = np.stack([self._entropy[state] for state in states[:-1]], axis=1)
        usable = np.full(len(row), DEPTH, dtype=np.int64)
        said = Said(usable, np.stack(confidence, axis=1), entropy)
        looked_up = self._looked_up(row)
        if self._copies:
            match = np.rint(8 * self._target[row].max(axis=1)).astype(np.int64)
            said = said._replace(copied=usable, match=match)
        verify, copied = self._server.decide(said)
        drafts = [np.where(copied, *each) for each in zip(looked_up, drafts, strict=True)]
        one_hot = copied & (self._copies == "one-hot")
        tokens, accepted = self._verified(row, drafts, verify, one_hot)
        emitted = np.arange(DEPTH) <= accepted[:, None]
        right = emitted & (tokens[:, :DEPTH] == np.stack(looked_up, axis=1))
        agreed = right.cumprod(axis=1).sum(axis=1) if self._copies else None
        self._server.verified(verify, accepted, [], agreed)
        self._last = tokens[:, -1]
        return row, tokens[:, :DEPTH] @ TOKENS ** np.arange(DEPTH)[::-1], verify, copied

    def _looked_up(self, row: IntArray) -> list[IntArray]:
        """[B] drafts of each position."""
        found: list[IntArray] = []
        for _ in range(DEPTH):
            found.append(self._likeliest[row])
            row = self._kind * TOKENS + found[-1]
        return found

    def _verified(
        self, state: IntArray, drafts: list[IntArray], verify: IntArray, one_hot: BoolArray
    ) -> tuple[IntArray, IntArray]:
        """[B, 3] tokens and [B] accepted drafts (Leviathan et al., 2211.17192, algorithm 1)."""
        batch = len(verify)
        tokens = np.zeros((batch, LENGTH), dtype=np.int64)
        accepted: IntArray = np.zeros(batch, dtype=np.int64)
        running = np.ones(batch, dtype=np.bool_)
        for j in range(LENGTH):
            target = self._target[state]
            token = self._token(target)
            if j < DEPTH:
                draft = drafts[j]
                proposed = np.where(one_hot[:, None], np.eye(TOKENS)[draft], self._draft[state])
                judged = running & (j < verify)
                chance = _at(target, draft) / _at(proposed, draft)
                good = judged & (self._random.random(batch) < chance)
                residual = np.maximum(target - proposed, 0.0)
                residual /= np.maximum(residual.sum(axis=1, keepdims=True), 1e-300)
                token = np.where(judged, self._token(residual), token)
                token = np.where(good, draft, token)
                accepted += good
                running = good
            tokens[:, j] = token
            state = self._kind * TOKENS + token
        return tokens, accepted

    def _token(self, law: FloatArray) -> IntArray:
        """[B] a token of each row of [B, 3]."""
        below = np.cumsum(law, axis=1)[:, :-1]
        drawn = self._random.random((len(law), 1))
        token: IntArray = (drawn >= below).sum(axis=1).astype(np.int64)
        return token


def _at(law: FloatArray, token: IntArray) -> FloatArray:
    found: FloatArray = law[np.arange(len(token)), token]
    return found
