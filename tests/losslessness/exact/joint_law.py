"""The joint law of the batch's output under a policy, by trying every draft.

    P(y_1, y_2) = sum over drafts x_1, x_2 of q(x_1) q(x_2) P(y_1 | x_1, K_1) P(y_2 | x_2, K_2)

with K = (K_1, K_2) what the policy plans for what is shown of x_1 and x_2 (a request that takes
looked-up drafts verifies those in the place of its x); and so on, round by
round, with the state in which the round before has left the policy. It is lossless iff this is the
product of the two targets' laws.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from adaptive_spec.step import FloatArray, IntArray
from tests.losslessness.exact.models import Prefix
from tests.losslessness.exact.request import Emitted, Request
from tests.losslessness.exact.server import Said, Server

Shown = Literal["maximum", "token"]
"""What stands for confidence: the maximum of q, as the seam has it, or q of the drafted token."""


class _Class(NamedTuple):
    """Drafts of one request that look the same to the policy."""

    usable: int
    confidence: tuple[float, ...]
    entropy: tuple[float, ...]
    copied: int | None
    match: int


class _Choice(NamedTuple):
    """The drafts that a request verifies: their number and their source."""

    k: int
    copied: bool


class Found(NamedTuple):
    """What the enumeration found.

    Attributes:
        joint: [27, 27] law of the two outputs.
        bias: total variation distance to the product of the targets' laws.
        marginal_bias: the larger of the two requests' own.
        plans: distinct K, with their sources, of the last round that the policy decided.
        sources: likewise, distinct sources of a request's drafts: 1 or 2.
    """

    joint: FloatArray
    bias: float
    marginal_bias: float
    plans: int
    sources: int


class _Node:
    """A server in a state, and what became of it for everything it was shown."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._decided: dict[tuple[_Class, ...], tuple[Server, tuple[_Choice, ...]]] = {}
        self._after: dict[tuple[object, ...], _Node] = {}

    def decided(self, classes: tuple[_Class, ...]) -> tuple[_Choice, ...]:
        """Return what each living request verifies."""
        if classes not in self._decided:
            server = self.server.copy()
            verify, copied = server.decide(_said(classes))
            chosen = zip(verify.tolist(), copied.tolist(), strict=True)
            self._decided[classes] = server, tuple(_Choice(*each) for each in chosen)
        return self._decided[classes][1]

    def after(
        self,
        classes: tuple[_Class, ...],
        accepted: tuple[int, ...],
        agreed: tuple[int, ...],
        ended: list[int],
    ) -> _Node:
        """The state after the round."""
        key = (classes, accepted, agreed, tuple(ended))
        if key not in self._after:
            server, chosen = self._decided[classes]
            server = server.copy()
            k = np.array([each.k for each in chosen], dtype=np.int64)
            copies = None if classes[0].copied is None else np.array(agreed)
            server.verified(k, np.array(accepted), ended, copies)
            self._after[key] = _Node(server)
        return self._after[key]

    def plans(self, rounds: int) -> set[tuple[_Choice, ...]]:
        """Distinct plans of the last of so many rounds from here."""
        if rounds == 1:
            return {chosen for _, chosen in self._decided.values()}
        return set().union(*(after.plans(rounds - 1) for after in self._after.values()))


def enumerate_batch(
    server: Server, requests: Sequence[Request], *, rounds: int = 1, shown: Shown = "maximum"
) -> Found:
    """The joint law of two requests' output over some rounds; the rest comes from the target.

    Args:
        server: its state is where the first round begins; it stays as it is.
        requests: two.
        rounds: that the policy decides.
        shown: what the policy sees as confidence.
    """
    views = [_View(request, shown) for request in requests]
    root = _Node(server)
    joint = _explore(root, views, ((), ()), rounds)
    truth = [request.continued(()) for request in requests]
    marginal = max(distance(joint.sum(axis=1), truth[0]), distance(joint.sum(axis=0), truth[1]))
    plans = root.plans(rounds)
    sources = {each.copied for plan in plans for each in plan}
    bias = distance(joint, np.outer(*truth))
    return Found(joint, bias, marginal, len(plans), len(sources))


def distance(one: FloatArray, other: FloatArray) -> float:
    """Total variation."""
    return float(np.abs(one - other).sum() / 2.0)


class _View:
    """What of one request's drafts the policy is shown, and the laws of drafts that look alike."""

    def __init__(self, request: Request, shown: Shown) -> None:
        self.request = request
        self._shown = shown
        self.classes = functools.cache(self._classes)
        self.law = functools.cache(self._law)
        self.emitted = functools.cache(self._emitted)

    def _classes(self, prefix: Prefix) -> dict[_Class, list[tuple[Prefix, float]]]:
        """Drafts and their probabilities, by what they look like."""
        found: dict[_Class, list[tuple[Prefix, float]]] = {}
        for drafts, chance in self.request.drafts(prefix):
            seen = _look_of(self.request, prefix, drafts, self._shown)
            found.setdefault(seen, []).append((drafts, chance))
        return found

    def _law(self, prefix: Prefix, seen: _Class, choice: _Choice) -> FloatArray:
        """[27] output if drafts of this class come and so many are verified; sums to P(class)."""
        law = np.zeros_like(self.request.continued(()))
        for after, chance in self.emitted(prefix, seen, choice).items():
            law = law + chance * self.request.continued(after.prefix)
        return law

    def _emitted(self, prefix: Prefix, seen: _Class, choice: _Choice) -> dict[Emitted, float]:
        """Likewise of the prefixes after the round."""
        law: dict[Emitted, float] = {}
        for drafts, chance in self.classes(prefix)[seen]:
            for after, share in self.request.emitted(prefix, drafts, *choice).items():
                law[after] = law.get(after, 0.0) + chance * share
        return law


def said_of(requests: Sequence[Request], drafts: Sequence[Prefix], shown: Shown) -> Said:
    """What a batch's drafts look like, each at the beginning of its output."""
    pairs = zip(requests, drafts, strict=True)
    return _said([_look_of(request, (), each, shown) for request, each in pairs])


def _look_of(request: Request, prefix: Prefix, drafts: Prefix, shown: Shown) -> _Class:
    said = [request.model.draft[prefix + drafts[:j]] for j in range(len(drafts))]
    if shown == "token":
        confidence = tuple(float(q[x]) for q, x in zip(said, drafts, strict=True))
    else:
        confidence = tuple(float(q.max()) for q in said)
    entropy = tuple(_entropy(q) for q in said)
    copied = len(request.copied(prefix)) if request.rules.copies else None
    usable = request.usable(prefix, drafts)
    return _Class(usable, confidence, entropy, copied, request.match(prefix))


def _said(classes: Sequence[_Class]) -> Said:
    return Said(
        np.array([each.usable for each in classes], dtype=np.int64),
        np.array([each.confidence for each in classes]),
        np.array([each.entropy for each in classes]),
        *_copies(classes),
    )


def _copies(classes: Sequence[_Class]) -> tuple[IntArray | None, IntArray | None]:
    """[B] looked-up drafts, and lengths of their matches."""
    copied = [each.copied for each in classes if each.copied is not None]
    if not copied:
        return None, None
    match = [each.match for each in classes]
    return np.array(copied, dtype=np.int64), np.array(match, dtype=np.int64)


def _explore(
    node: _Node, views: Sequence[_View], prefixes: tuple[Prefix, ...], rounds: int
) -> FloatArray:
    """[27, 27] law of both outputs from here on; `prefixes` of all, ended ones included."""
    alive = node.server.alive
    if not rounds or not alive:
        laws = [view.request.continued(each) for view, each in zip(views, prefixes, strict=True)]
        return np.outer(*laws)
    total = np.zeros((len(views[0].request.continued(())),) * 2)
    for classes in itertools.product(*(views[each].classes(prefixes[each]) for each in alive)):
        chosen = node.decided(classes)
        rows = {each: (classes[row], chosen[row]) for row, each in enumerate(alive)}
        if rounds == 1:
            laws = [
                view.law(prefix, *rows[i]) if i in rows else view.request.continued(prefix)
                for i, (view, prefix) in enumerate(zip(views, prefixes, strict=True))
            ]
            total += np.outer(*laws)
            continue
        ways = [views[each].emitted(prefixes[each], *rows[each]) for each in alive]
        for way in itertools.product(*(each.items() for each in ways)):
            after = list(prefixes)
            for each, (emitted, _) in zip(alive, way, strict=True):
                after[each] = emitted.prefix
            ended = [each for each in alive if views[each].request.ended(after[each])]
            accepted = tuple(emitted.accepted for emitted, _ in way)
            agreed = tuple(
                views[each].request.agreed(prefixes[each], after[each]) for each in alive
            )
            chance = float(np.prod([share for _, share in way]))
            child = node.after(classes, accepted, agreed, ended)
            total += chance * _explore(child, views, tuple(after), rounds - 1)
    return total


def _entropy(distribution: FloatArray) -> float:
    positive = distribution[distribution > 0.0]
    return float(-(positive * np.log(positive)).sum())
