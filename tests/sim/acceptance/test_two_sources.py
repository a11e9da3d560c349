"""Records of two sources that come with the package."""

from pathlib import Path

import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.two_sources import FILE, shipped_two_sources
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate
from tests.refused import refused

BOTH = "eagle+ngram"
KINDS = {"prose", "code", "edit", "quote", "agent", "json"}
REAL_KINDS = {"chat", "code", "edit", "extract", "summary", "sums", "story", "talk"}


def loaded(name: str, drafter_list: str = BOTH, kmax: int = 8) -> AcceptanceData:
    return load_acceptance([f"record:{name}"], drafter_list=drafter_list, seed=0, kmax=kmax)


def test_every_kind_of_text_is_there_with_both_sources() -> None:
    data = loaded("two_sources")
    assert set(data.labels) == KINDS
    assert FILE.stat().st_size < 200_000
    for kind in KINDS:
        one = loaded(f"two_sources:{kind}", kmax=4)
        assert set(one.labels) == {kind}
        assert one.records == data.labels.count(kind)
        assert one.depth == 4
        assert one.lookup.proposed.max() == 4
        assert (one.lookup.right <= one.lookup.proposed).all()


def test_longer_matches_are_more_often_right() -> None:
    found = loaded("two_sources").lookup
    assert found.match is not None
    assert found.proposed is not None
    classes = [(found.match >= low) & (found.match < high) for low, high in ((1, 3), (6, 32))]
    short, long = (float((found.right[at] > 0).mean()) for at in classes)
    assert long > short + 0.3


def test_text_that_copies_is_looked_up_and_prose_is_not() -> None:
    def right(kind: str, name: str = "two_sources") -> float:
        return float(loaded(f"{name}:{kind}", "ngram").accepted.mean())

    assert right("edit") > 5 * right("prose")
    assert right("json", "two_sources+others") > right("json")


def test_the_target_agrees_with_its_drafter_more_than_the_text_does() -> None:
    by_text, by_target = (
        loaded(name, "eagle").accepted.mean() for name in ("two_sources", "two_sources+target")
    )
    assert by_target > 2 * by_text


@pytest.mark.parametrize(("name", "heat"), [("real_text_t0", 0.0), ("real_text_t0.7", 0.7)])
def test_a_models_own_answers_have_a_head_with_confidence_and_two_look_ups(
    name: str, heat: float
) -> None:
    data = loaded(name)
    assert set(data.labels) == REAL_KINDS
    assert data.temperature == heat
    first = data.confidence[:, 0]
    assert first[data.accepted > 0].mean() > first[data.accepted == 0].mean() + 0.1
    head, ngram, suffix = (
        loaded(name, "eagle"),
        loaded(name, "ngram"),
        loaded(f"{name}+suffix", "ngram"),
    )
    assert (head.accepted == data.accepted).all()
    assert (suffix.accepted == data.lookup.right).all()
    assert (ngram.accepted != data.lookup.right).any()
    assert ngram.confidence is None
    assert loaded(f"{name}+suffix:edit", "ngram").accepted.mean() > suffix.accepted.mean()
    assert sum(loaded(f"{name}:{kind}").records for kind in REAL_KINDS) == data.records


@pytest.mark.parametrize("drafter", ["eagle", "suffix", "hybrid"])
def test_each_source_alone_and_both_run_in_the_simulator(drafter: str) -> None:
    scenario = Scenario(
        load="closed:4",
        acceptance=("record:two_sources+target",),
        drafter=drafter,
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=8),
        tokens=1_000,
    )
    result = simulate(scenario, parse_policy("static:k=3"))
    assert result.fail_opens == 0
    assert result.throughput_tok_s > 0.0


@pytest.mark.parametrize(
    ("name", "kmax", "told"),
    [
        ("two_sources:poetry", 8, "no such kind of text; there are"),
        ("two_sources+mine", 8, r"there is two_sources\[\+others\]"),
        ("two_sources", 9, "holds 8 drafts"),
        ("real_text_t0+target", 8, "no such record"),
        ("real_text_t0.7:poetry", 8, "no such kind of text; there are"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(name: str, kmax: int, told: str) -> None:
    with refused(DataError, match=told):
        loaded(name, kmax=kmax)


@pytest.mark.parametrize(
    ("array", "value", "told"),
    [
        ("own_right", np.zeros(3, dtype=np.uint8), "not whole"),
        ("text", np.array([1.0]), "not a list of numbers"),
        ("own_proposed", None, "more drafts right than found"),
        ("length", None, "without tokens"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(
    tmp_path: Path, array: str, value: object, told: str
) -> None:
    with np.load(FILE) as archive:
        arrays = dict(archive)
    arrays[array] = np.zeros_like(arrays[array]) if value is None else value
    if array == "length":
        arrays["length"][0] = sum(np.load(FILE)["length"])
    np.savez(tmp_path / "broken.npz", **arrays)
    with refused(DataError, match=told):
        shipped_two_sources("two_sources", BOTH, depth=8, file=tmp_path / "broken.npz")
