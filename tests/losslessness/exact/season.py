"""Rounds drawn at random, so that a policy has learned something before its law is enumerated."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tests.losslessness.exact.joint_law import Shown, said_of
from tests.losslessness.exact.models import confident_model
from tests.losslessness.exact.request import EOS, Drafting, Request, Rules
from tests.losslessness.exact.server import Server

Item = TypeVar("Item")

SKILLS = (0.9, 0.6)
"""Of the two requests' drafters."""


class Text:
    """Two requests that go on for ever; the tables know the last token of each.

    Args:
        server: decides.
        shown: what it is shown as confidence.
        drafting: how drafts are made.
    """

    def __init__(
        self, server: Server, shown: Shown = "maximum", drafting: Drafting = "sampled"
    ) -> None:
        self.server = server
        self._shown: Shown = shown
        depth = server.controller.capability.max_draft_tokens
        self._rules = Rules(depth=depth, drafting=drafting)
        self._last = [EOS, EOS]
        self._random = np.random.default_rng(11)
        self._request = functools.cache(self._made)

    @property
    def requests(self) -> list[Request]:
        """From here on."""
        return [self._request(skill, last) for skill, last in zip(SKILLS, self._last, strict=True)]

    def run(self, rounds: int) -> None:
        """Draft, decide, verify."""
        for _ in range(rounds):
            requests = self.requests
            drafts = [self._drawn(request.drafts(())) for request in requests]
            said = said_of(requests, drafts, self._shown)
            verify = self.server.decide(said)
            emitted = [
                self._drawn(tuple(request.emitted((), x, k).items()))
                for request, x, k in zip(requests, drafts, verify.tolist(), strict=True)
            ]
            accepted = np.array([each.accepted for each in emitted], dtype=np.int64)
            self.server.verified(verify, accepted, [])
            self._last = [each.prefix[-1] for each in emitted]

    def _made(self, skill: float, last: int) -> Request:
        return Request(confident_model(skill, last), self._rules)

    def _drawn(self, law: Sequence[tuple[Item, float]]) -> Item:
        chances = np.array([chance for _, chance in law])
        return law[int(self._random.choice(len(law), p=chances / chances.sum()))][0]
