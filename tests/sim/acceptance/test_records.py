import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import steps_of
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.records import record_file, record_names, shipped_record
from tests.refused import refused

KINDS = {"code", "prose", "json", "log", "random"}


@pytest.fixture(scope="module", params=record_names())
def name(request):
    return request.param


def test_a_shipped_record_replays_each_step_and_its_confidence_as_recorded(name):
    with record_file(name).open("rb") as stream, np.load(stream) as archive:
        arrays = {key: archive[key] for key in archive.files}
    data = shipped_record(name)
    starts, accepted = steps_of(data, data.depth)
    assert accepted.tolist() == arrays["accepted"].tolist()
    np.testing.assert_array_equal(data.confidence[starts], arrays["max_prob"].astype(np.float32))
    record = np.searchsorted(data.offsets, starts, side="right") - 1
    assert record.tolist() == arrays["request"].tolist()
    assert list(data.labels) == arrays["label"].tolist()


def test_every_draft_of_a_shipped_record_has_a_confidence_and_an_entropy(name):
    with record_file(name).open("rb") as stream, np.load(stream) as archive:
        shown, entropy = archive["max_prob"], archive["entropy"]
    assert shown.shape == entropy.shape
    assert ((shown > 0) & (shown <= 1)).all()
    assert (entropy >= 0).all()


def test_a_shipped_record_tells_kind_of_prompt_and_temperature(name):
    data = shipped_record(name)
    assert set(data.labels) == KINDS
    assert data.temperature == float(name.rpartition("_t")[2])


def test_one_kind_of_a_record_is_the_records_of_that_kind():
    whole, one = shipped_record("good_t0.8"), shipped_record("good_t0.8:json")
    assert set(one.labels) == {"json"}
    assert one.records == whole.labels.count("json")
    assert one.name == "good_t0.8:json"


def test_records_of_two_temperatures_pool_and_keep_theirs():
    data = load_acceptance(
        ["record:good_t0:json", "record:good_t0.8:code"], drafter_list="eagle", seed=0, kmax=6
    )
    by_label = dict(zip(data.labels, data.temperatures.tolist(), strict=True))
    assert by_label == {"json": 0.0, "code": 0.8}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no-such", "no such record; there are .*good_t0.8"),
        ("good_t0.8:verse", "no such kind of prompt; there are .*json"),
        ("../recorded", "no such record"),
    ],
)
def test_an_unknown_record_or_kind_is_refused_with_what_there_is(text, said):
    with refused(DataError, match=said):
        load_acceptance([f"record:{text}"], drafter_list="eagle", seed=0, kmax=6)
