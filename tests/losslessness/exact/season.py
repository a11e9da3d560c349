"""Rounds drawn at random, so that a policy has learned something before its law is enumerated."""

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tests.losslessness.exact.joint_law import Shown, said_of
from tests.losslessness.exact.models import confident_model
from tests.losslessness.exact.request import EOS, Copies, Drafting, Request, Rules
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
        copies: drafts that are looked up.
        blocks: drafts are verified as a block.
    """

    def __init__(
        self,
        server: Server,
        shown: Shown = "maximum",
        drafting: Drafting = "sampled",
        copies: Copies = "",
        *,
        blocks: bool = False,
    ) -> None:
        self.server = server
        self._shown: Shown = shown
        depth = server.controller.capability.max_draft_tokens
        self._rules = Rules(depth=depth, drafting=drafting, copies=copies, blocks=blocks)
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
            verify, copied = self.server.decide(said)
            chosen = zip(requests, drafts, verify.tolist(), copied.tolist(), strict=True)
            emitted = [
                self._drawn(tuple(request.emitted((), *rest).items())) for request, *rest in chosen
            ]
            accepted = np.array([each.accepted for each in emitted], dtype=np.int64)
            pairs = zip(requests, emitted, strict=True)
            agreed = np.array([request.agreed((), each.prefix) for request, each in pairs])
            self.server.verified(verify, accepted, [], None if said.copied is None else agreed)
            self._last = [each.prefix[-1] for each in emitted]

    def _made(self, skill: float, last: int) -> Request:
        return Request(confident_model(skill, last), self._rules)

    def _drawn(self, law: Sequence[tuple[Item, float]]) -> Item:
        chances = np.array([chance for _, chance in law])
        return law[int(self._random.choice(len(law), p=chances / chances.sum()))][0]
