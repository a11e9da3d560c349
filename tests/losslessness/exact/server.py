"""A policy behind the real `Controller`, in an engine small enough to try every draft.

A round goes as in an engine: draft, learn from the round before, plan, verify.
"""

from __future__ import annotations

import copy
from typing import Literal, NamedTuple

import numpy as np

from adaptive_spec import Capability, Config, Controller, Mode
from adaptive_spec.config import FailOpen
from adaptive_spec.policy import Policy
from adaptive_spec.step import BoolArray, FloatArray, IntArray, StepContext, StepOutcome
from tests import steps

Signal = Literal["live", "late", "none"]
"""The drafter's confidence comes with the drafts, or a round later, or not at all."""

_CONFIG = Config(fail_open=FailOpen(max_decision_ms=1e9))
"""A decision that the machine delays must not become the engine's own."""


class Said(NamedTuple):
    """What the drafter would say of every position of a round, whatever is kept of it.

    Attributes:
        usable: [B] the most drafts that could be verified.
        confidence: [B, Kmax] maximum probability, or that of the drafted token.
        entropy: [B, Kmax] nats.
        copied: [B] drafts that are looked up; None: the engine looks nothing up.
        match: [B] lengths of the matches that found them; None as above.
    """

    usable: IntArray
    confidence: FloatArray
    entropy: FloatArray
    copied: IntArray | None = None
    match: IntArray | None = None


class Decided(NamedTuple):
    """A round's plan.

    Attributes:
        verify: [B] K_i.
        copied: [B] requests that verify looked-up drafts.
    """

    verify: IntArray
    copied: BoolArray


class Server:
    """Some requests, a policy, and what it decides.

    Args:
        policy: driven through a `Controller`.
        capability: of the engine.
        requests: how many there are at first.
        signal: what the policy is told of the drafter's confidence.
    """

    def __init__(
        self, policy: Policy, capability: Capability, requests: int = 2, signal: Signal = "live"
    ) -> None:
        self.controller = Controller(policy, capability, _CONFIG)
        self.signal = signal
        self.alive = list(range(requests))
        """Requests that still run."""
        self.slots: IntArray = np.array(
            [self.controller.slots.assign(str(each)) for each in self.alive], dtype=np.int64
        )
        self._context_tokens = np.full(requests, 50, dtype=np.int64)
        # A draft costs a batch of any size the same share of a step.
        self._token_seconds = 0.005 / requests
        self._depth = capability.max_draft_tokens
        self._step = 0
        self._now = 100.0
        self._before: Said | None = None
        self._outcome: StepOutcome | None = None
        self._planned: StepContext | None = None

    def copy(self) -> Server:
        """The same past, another future."""
        other = copy.copy(self)
        policy = copy.deepcopy(self.controller.policy)
        other.controller = Controller(policy, self.controller.capability, _CONFIG)
        other.controller.slots = copy.deepcopy(self.controller.slots)
        # Without its planned step the copy would learn nothing of the round.
        other.controller._in_flight = copy.deepcopy(self.controller._in_flight)
        other.controller._auditor = copy.deepcopy(self.controller._auditor)
        other._context_tokens = self._context_tokens.copy()
        return other

    def decide(self, said: Said) -> Decided:
        """Plan the round, for the requests that are alive."""
        controller, capability = self.controller, self.controller.capability
        batch = len(self.alive)
        drafted = np.minimum(said.usable, self._drafted())
        if self._outcome is not None:
            controller.observe(self._outcome)
            self._outcome = None
        confidence, entropy = self._told(said, drafted)
        rows = self.slots[self.alive]
        context = steps.context(
            capability=capability,
            step=self._step,
            request_ids=[str(each) for each in self.alive],
            slots=rows,
            context_tokens=self._context_tokens[self.alive],
            draft_available=drafted,
            temperature=np.ones(batch),
            confidence=confidence,
            entropy=entropy,
            lookup_available=said.copied,
            lookup_match=said.match,
            now=self._now,
        )
        plan = controller.plan(context)
        failed = controller.status()["fail_opens"]
        assert not failed, failed
        assert plan.mode is not Mode.ENGINE
        if capability.steers_depth:
            self._depth = plan.draft_depth
        self._before = said
        self._planned = context
        nobody = np.zeros(batch, dtype=np.bool_)
        return Decided(plan.verify, nobody if plan.from_lookup is None else plan.from_lookup)

    def verified(
        self, verify: IntArray, accepted: IntArray, ended: list[int], agreed: IntArray | None = None
    ) -> None:
        """The round has run.

        Args:
            verify: [B] K_i.
            accepted: [B] drafts accepted.
            ended: requests whose output is complete.
            agreed: [B] leading looked-up drafts that came out; None: nothing is looked up.
        """
        assert self._planned is not None
        batch = len(self.alive)
        tokens = batch + int(verify.sum())
        seconds = 0.01 + self._token_seconds * tokens + 0.0005 * self._depth
        self._now += seconds
        emitted = accepted + 1
        self._outcome = steps.outcome(
            self._planned,
            verify,
            accepted,
            draft_depth=self._depth,
            seconds=seconds,
            now=self._now,
            lookup_agreed=agreed,
        )
        self._context_tokens[self.alive] += emitted
        self._step += 1
        if ended:
            stays = [row for row, each in enumerate(self.alive) if each not in ended]
            self.controller.observe(self._outcome)
            self._outcome = None
            self.controller.finish(str(each) for each in ended)
            self.alive = [each for each in self.alive if each not in ended]
            if self._before is not None:
                self._before = Said(
                    *(None if each is None else each[stays] for each in self._before)
                )

    def _drafted(self) -> IntArray:
        """[B] drafts that are made."""
        return np.full(len(self.alive), self._depth, dtype=np.int64)

    def _told(self, said: Said, drafted: IntArray) -> tuple[FloatArray | None, FloatArray | None]:
        """Confidence and entropy as the context has them: of the drafts at hand only."""
        if self.signal == "none":
            return None, None
        if self.signal == "late":
            before = self._before
            if before is None:
                unknown = np.full(said.confidence.shape, np.nan)
                return unknown, unknown
            return before.confidence, before.entropy
        at_hand = np.arange(said.confidence.shape[1]) < drafted[:, None]
        confidence: FloatArray = np.where(at_hand, said.confidence, np.nan)
        entropy: FloatArray = np.where(at_hand, said.entropy, np.nan)
        return confidence, entropy
