import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.profile_file import (
    HardwareProfile,
    MeasuredDraft,
    read_hardware_profile,
    write_hardware_profile,
)
from tests.refused import refused


def some_profile(**changes) -> HardwareProfile:
    values = dict(
        schema=1,
        name="mine",
        source="made up",
        memory_bytes=80e9,
        weight_bytes=16e9,
        kv_bytes_per_token=131072.0,
        layers=32,
        overhead=1e-3,
        fixed=5e-3,
        per_token=2e-5,
        per_request=1e-5,
        per_context_token=4e-8,
        per_prefill_token=3e-6,
        per_prefill_context_token=1e-9,
        drafts={"eagle": MeasuredDraft(pass_=7e-4)},
    )
    return HardwareProfile(**{**values, **changes})


def test_a_profile_reads_back_as_it_was_written(tmp_path):
    profile = some_profile(tokens=[1, 8, 64], seconds=[1e-3, 2e-3, 9e-3], token_buckets=[1, 8])
    write_hardware_profile(profile, tmp_path / "mine.json")
    assert read_hardware_profile(tmp_path / "mine.json") == profile


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"speed": 1.0}, "speed"),
        ({"schema": 2}, "schema"),
        ({"memory_bytes": "much"}, "memory_bytes"),
        ({"per_token": -1.0}, "per_token"),
        ({"tokens": [1, 2], "seconds": [0.1]}, "differ in length"),
        ({"tokens": [4, 2], "seconds": [0.1, 0.2]}, "`tokens` must ascend"),
        ({"tokens": [2, 4], "seconds": [0.2, 0.1]}, "must not fall"),
        ({"token_buckets": [8, 8]}, "`token_buckets` must ascend"),
        ({"weight_bytes": 90e9}, "weight_bytes"),
        ({"fixed": 0.0, "overhead": 0.0}, "takes no time"),
    ],
)
def test_a_wrong_profile_is_one_line_that_names_file_and_key(tmp_path, change, named):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({**msgspec.to_builtins(some_profile()), **change}))
    with refused(ConfigError, "wrong.json", match=named):
        read_hardware_profile(path)
    with pytest.raises(ConfigError, match=r"none\.json"):
        read_hardware_profile(tmp_path / "none.json")


def test_a_step_is_the_sum_of_its_parts():
    hardware = Hardware(some_profile())
    expected = 1e-3 + 5e-3 + 2e-5 * (256 + 100) + 1e-5 * 64 + 4e-8 * 9000 + 3e-6 * 100 + 1e-9 * 5000
    assert hardware.verify_seconds(64, 256, 9000, 100, 5000) == pytest.approx(expected, rel=1e-12)


def test_prompt_tokens_can_stay_out_of_the_curve():
    curve = dict(tokens=[1, 101], seconds=[0.0, 1.0], per_token=0.0, prefill_in_curve=False)
    hardware = Hardware(some_profile(**curve))
    with_prompt = hardware.verify_seconds(1, 51, 0, 1000, 0)
    assert with_prompt - hardware.verify_seconds(1, 51, 0, 0, 0) == pytest.approx(3e-6 * 1000)


def test_the_curve_is_linear_between_its_knots_and_past_the_last():
    hardware = Hardware(
        some_profile(
            tokens=[10, 20, 40],
            seconds=[1.0, 2.0, 6.0],
            per_token=0.0,
            fixed=0.0,
            overhead=0.0,
            per_request=0.0,
        )
    )
    seconds = [hardware.verify_seconds(1, tokens, 0, 0, 0) for tokens in (1, 10, 15, 20, 30, 50)]
    assert seconds == pytest.approx([1.0, 1.0, 1.5, 2.0, 4.0, 8.0])


@given(
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12), st.integers(0, 400), st.integers(0, 400)
)
def test_more_tokens_never_take_less_time(heights, fewer, more):
    knots = [1 + 7 * i for i in range(len(heights))]
    hardware = Hardware(some_profile(tokens=knots, seconds=sorted(heights)))
    fewer, more = sorted((fewer, more))
    less = hardware.verify_seconds(1, fewer, 0, 0, 0)
    assert less <= hardware.verify_seconds(1, more, 0, 0, 0) + 1e-9


def test_a_pass_is_a_share_of_the_target_and_its_launch():
    hardware = Hardware(some_profile(draft_pass_overhead=2e-4))
    whole = hardware.verify_seconds(8, 8, 1000, 0, 0) - 1e-3
    assert hardware.pass_seconds(0.1, 8, 1000) == pytest.approx(0.1 * whole + 2e-4)


def test_an_unnamed_recording_prices_any_drafter():
    hardware = Hardware(some_profile(drafts={"*": MeasuredDraft(pass_=1e-3)}))
    assert hardware.measured_draft("medusa").pass_ == 1e-3
