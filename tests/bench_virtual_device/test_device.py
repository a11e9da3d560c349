"""What a device charges for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.step import Capability, Level
from benchmarks.virtual_device.arms import NONE, STATIC, parse_arm, table_name
from benchmarks.virtual_device.cells import Curve, tables
from benchmarks.judge.device import DEVICES, Device, Graphs, Work, device
from benchmarks.virtual_device.runs import Run
from benchmarks.virtual_device.sweep import QUICK, REQUESTS, SECTIONS
from benchmarks.virtual_device.traffic import traced

WORK = Work(requests=8, tokens=32, context=800, least_k=3, most_k=3, drafting=8, passes=3)


def seconds(work: Work, name: str = "h100-8b", **graphs: object) -> float:
    made = msgspec.structs.replace(DEVICES[name], graphs=msgspec.convert(graphs, Graphs))
    return made.charge("draft_model").seconds(work)


@pytest.mark.parametrize("name", list(DEVICES))
@pytest.mark.parametrize("more", ["tokens", "context", "prefill", "passes"])
def test_more_work_takes_longer(name: str, more: str) -> None:
    grown = msgspec.structs.replace(WORK, **{more: getattr(WORK, more) + 100})
    assert seconds(grown, name) > seconds(WORK, name)


def test_a_pass_that_did_not_run_costs_nothing() -> None:
    one, two, three = (seconds(msgspec.structs.replace(WORK, passes=n)) for n in (1, 2, 3))
    assert three - two == pytest.approx(two - one)
    none = seconds(msgspec.structs.replace(WORK, passes=0))
    assert none == pytest.approx(one - (two - one))


def test_a_captured_size_costs_what_it_pads_to() -> None:
    odd, padded = (msgspec.structs.replace(WORK, tokens=n) for n in (33, 40))
    assert seconds(odd, sizes=[8, 40]) == seconds(padded, sizes=[8, 40])
    assert seconds(odd, kind="eager", sizes=[8, 40]) < seconds(padded, kind="eager")


def test_only_a_ragged_batch_pays_the_penalty() -> None:
    mixed = msgspec.structs.replace(WORK, least_k=1)
    for kind in ("ragged", "uniform"):
        same = seconds(WORK, kind=kind, ragged_penalty=0.2)
        assert same == seconds(WORK)
        assert seconds(mixed, kind=kind, ragged_penalty=0.2) > 1.1 * same
    assert seconds(mixed, kind="varlen", ragged_penalty=0.2) == seconds(WORK)


def test_a_k_off_the_ladder_runs_as_a_ragged_batch() -> None:
    ladder = dict(kind="ladder", ragged_penalty=0.2)
    assert seconds(WORK, ladder=[0, 3], **ladder) == seconds(WORK)
    assert seconds(WORK, ladder=[0, 2], **ladder) > 1.1 * seconds(WORK)


def test_the_adapter_sees_the_control_of_the_device() -> None:
    found = Capability(level=Level.FULL, max_draft_tokens=6)
    assert DEVICES["h100-8b"].capability(found).level is Level.FULL
    assert DEVICES["h100-moe"].capability(found).token_buckets
    one_k = Device(
        name="d", hardware="h100-llama-8b", graphs=Graphs(kind="ladder", ladder=(0, 2, 6))
    )
    assert one_k.capability(found).uniform_values == (0, 2, 6)


def test_a_hardware_profile_is_a_device() -> None:
    assert device("b200-llama-8b").charge("eagle").seconds(WORK) > 0
    with pytest.raises(ConfigError, match="unknown hardware"):
        device("abacus")
    with pytest.raises(ConfigError, match="no drafter"):
        DEVICES["h100-8b"].charge("abacus")


def test_the_table_is_tuned_on_a_device_of_the_user(tmp_path: Path) -> None:
    profile = tmp_path / "mine.json"
    profile.write_bytes(msgspec.json.encode(hardware_profile("h100-llama-8b")))
    own = device(str(profile))
    section = replace(
        SECTIONS["main"], methods=("ngram",), clients={4: REQUESTS[4]}, devices=(own.name,)
    )
    (load,) = section.loads()
    runs = {}
    for arm in (NONE, *STATIC):
        key = section.key("ngram", arm, own.name, load)
        steps = [Work(requests=4, tokens=8, emitted=9 if arm == "k2" else 5)] * 50
        runs[key] = Run(key=key, steps=steps, sums=[])
    assert tables([section], runs, {own.name: own}) == {
        ("main", "ngram", own.name): "table:1-256=2"
    }


def test_a_quick_run_does_not_pass_for_one_of_the_whole_sweep() -> None:
    quick = {QUICK.key("ngram", "k1", "h100-8b", load) for load in QUICK.loads()}
    main = SECTIONS["main"]
    assert not quick & {main.key("ngram", "k1", "h100-8b", load) for load in main.loads()}


def test_arms_are_read_as_they_are_written() -> None:
    assert parse_arm("k3").k == 3
    assert parse_arm(table_name({1: 6, 16: 2}, 256)).table == [(1, 1, 6), (2, 256, 2)]
    made = parse_arm('policy:static={"k": 2}-warm')
    assert made.warm
    assert made.config == {"policy": "static", "options": {"k": 2}}
    with pytest.raises(ConfigError, match="unknown arm"):
        parse_arm("k7")


def test_a_loop_goes_on_as_in_its_steady_part() -> None:
    steps = [Work(requests=1, tokens=1, context=100, emitted=1)] * 100
    curve = Curve(steps, DEVICES["h100-8b"].charge("none"))
    assert curve.at(250) == pytest.approx(250 / curve.steady)
    assert curve.at(10.5) == pytest.approx(10.5 / curve.steady)


def test_a_request_is_as_fast_as_a_token_for_each_request_in_a_step() -> None:
    steps = [Work(requests=4, tokens=4, context=400, drafting=4, emitted=4)] * 100
    charge = DEVICES["h100-8b"].charge("none")
    each = Curve(steps, charge, each=True)
    assert each.steady == pytest.approx(Curve(steps, charge).steady / 4)


def test_arrivals_keep_their_bursts_at_another_rate(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = ["arrival_s,input_tokens,output_tokens", *(f"{t},9,9" for t in (5, 6, 6, 9, 500))]
    trace.write_text("\n".join(rows), encoding="utf-8")
    load = traced(trace, 4, rate=2.0)
    assert load.arrivals == pytest.approx((0.0, 0.5, 0.5, 2.0))
    with pytest.raises(DataError, match="fewer than 6"):
        traced(trace, 6, rate=2.0)
