"""A device charges for a pass, its drafts and its context."""

from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.step import Capability, Level
from benchmarks.judge.clock import Noise
from benchmarks.judge.device import DEVICES, Device, Graphs, Work, device

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


def test_a_captured_batch_costs_what_it_pads_to_for_each_k() -> None:
    captured = dict(kind="batches", sizes=[8, 12], ladder=[0, 1, 3])
    assert seconds(WORK, **captured) == seconds(WORK)
    ten, twelve = (
        msgspec.structs.replace(WORK, requests=10, tokens=n, drafting=10) for n in (40, 48)
    )
    assert seconds(ten, **captured) == seconds(twelve, kind="eager")
    # 40 tokens are captured, too: 8 requests by 5. But a batch is padded, not its tokens.
    assert seconds(ten, kind="batches", sizes=[8, 12], ladder=[3, 4]) == seconds(ten, **captured)


def test_a_captured_batch_runs_in_its_graph(tmp_path: Path) -> None:
    profile = msgspec.structs.replace(hardware_profile("h100-llama-8b"), outside_graph_seconds=1.0)
    file = tmp_path / "outside.json"
    file.write_bytes(msgspec.json.encode(profile))
    graphs = Graphs(kind="batches", sizes=(8, 12), ladder=(0, 1, 3))
    charge = msgspec.structs.replace(device(str(file)), graphs=graphs).charge("eagle")
    assert charge.seconds(WORK) < 1.0
    prompts = msgspec.structs.replace(WORK, prefill=10)
    assert charge.seconds(prompts) > 1.0
    beyond = msgspec.structs.replace(WORK, requests=13, tokens=52)
    assert charge.seconds(beyond) > 1.0


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


def test_noise_has_mean_one_and_is_the_same_in_every_arm() -> None:
    drawn = [Noise(0.3, 5).seconds(1.0) for _ in range(2)]
    assert drawn[0] == drawn[1]
    noise = Noise(0.3, 5)
    assert fmean(noise.seconds(1.0) for _ in range(20_000)) == pytest.approx(1.0, abs=0.01)
    assert Noise(0.0, 5).seconds(0.5) == 0.5


def test_a_neighbour_comes_and_goes_by_the_time_that_the_device_works() -> None:
    noise = Noise(0.0, 5, (2.0, 3.0, 1.5))
    assert [noise.seconds(1.0) for _ in range(8)] == [1.0, 1.0, 1.5, 1.5, 1.0, 1.0, 1.5, 1.5]
