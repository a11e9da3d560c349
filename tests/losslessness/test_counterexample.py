"""The worked counterexample of docs/losslessness.md has the numbers that it says."""

from pathlib import Path

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.step import FloatArray, IntArray
from tests.losslessness.exact import rules
from tests.losslessness.exact.joint_law import Shown, enumerate_batch
from tests.losslessness.exact.models import Model, prefixes
from tests.losslessness.exact.request import Request
from tests.losslessness.exact.rules import Planted, Rule
from tests.losslessness.exact.server import Server

A, B = 0, 1


def two_tokens() -> Request:
    """p and q of the document; the third token never comes."""
    target = {each: np.array([0.5, 0.5, 0.0]) for each in prefixes(7)}
    draft = {each: np.array([0.55, 0.45, 0.0]) for each in prefixes(7)}
    draft[()] = np.array([0.9, 0.1, 0.0])
    draft[(A,)] = np.array([0.8, 0.2, 0.0])
    return Request(Model(target, draft))


def first_token(rule: Rule, shown: Shown = "maximum") -> FloatArray:
    """[3] law of the first token of the output."""
    server = Server(Planted(rule), Capability(level=Level.VERIFY, max_draft_tokens=2))
    request = two_tokens()
    joint = enumerate_batch(server, [request, request], shown=shown).joint
    law: FloatArray = joint.sum(axis=1).reshape(3, 3, 3).sum(axis=(1, 2))
    return law


def one_by_threshold(confidence: FloatArray) -> IntArray:
    return (confidence[:, 0] >= 0.5).astype(np.int64)


def test_the_rule_gives_the_likelier_draft_a_second_chance() -> None:
    assert first_token(one_by_threshold, "token") == pytest.approx([0.55, 0.45, 0.0], abs=1e-12)


def test_by_the_maximum_it_is_exact() -> None:
    assert first_token(one_by_threshold) == pytest.approx([0.5, 0.5, 0.0], abs=1e-12)


def test_the_deeper_position_tells_the_same() -> None:
    law = first_token(rules.last_position)
    assert law == pytest.approx([0.55, 0.45, 0.0], abs=1e-12)


def test_the_document_shows_these_numbers() -> None:
    request = two_tokens()
    rows = []
    for token, k in ((A, 1), (B, 0)):
        law = request.emitted((), (token, A), k)
        chance = 0.9 if token == A else 0.1
        first = [sum(p for each, p in law.items() if each.prefix[0] == y) for y in (A, B)]
        rows.append([chance * each for each in first])
    rows.append(first_token(one_by_threshold, "token")[:2].tolist())
    text = (Path(__file__).parents[2] / "docs/losslessness.md").read_text()
    for name, row in zip(("from drafts of a", "from drafts of b", "output"), rows, strict=True):
        assert f"| {name} | {row[0]:.2f} | {row[1]:.2f} |" in text
