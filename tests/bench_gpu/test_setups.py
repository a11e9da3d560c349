from __future__ import annotations

import itertools

import msgspec
import pytest

from adaptive_spec import Config
from benchmarks.gpu.setups import METHODS, Machine, setup_for
from benchmarks.gpu.steered import NAME

GPU = Machine(models="models", scratch="out", gpu=True)
CPU = Machine(models="models", scratch="out", gpu=False, max_num_seqs=4)
KINDS = ("k3", "vllm", "adaptive", "ours", "ladder", "quiet", "long")
KEYS = (
    *("none", "none-long", "eagle-vllm-sync", "eagle-ours-sync"),
    *(f"{method}-{kind}" for method, kind in itertools.product(METHODS, KINDS)),
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("machine", [GPU, CPU])
def test_a_setup_survives_the_way_to_its_process(key: str, machine: Machine) -> None:
    setup = setup_for(key, machine)
    sent = msgspec.json.decode(msgspec.json.encode(setup), type=type(setup))
    assert msgspec.json.encode(sent) == msgspec.json.encode(setup)
    assert setup.cpu is not machine.gpu


@pytest.mark.parametrize(
    "key", [key for key in KEYS if key.split("-")[-1] in KINDS[3:] and key != "none-long"]
)
def test_our_configuration_starts_with_the_policy_switched_to(key: str) -> None:
    for machine in (GPU, CPU):
        given = setup_for(key, machine).arguments["additional_config"]["adaptive_spec"]
        assert msgspec.convert(given, Config).policy == NAME


def test_only_ours_has_the_plugin_and_only_speculation_a_drafter() -> None:
    for key in KEYS:
        arguments = setup_for(key, GPU).arguments
        assert ("speculative_config" in arguments) is not key.startswith("none")
        ours = any(kind in key for kind in ("-ours", "-ladder", "-quiet")) or key in (
            "eagle-long",
            "draft_model-long",
        )
        assert ("additional_config" in arguments) is ours


def test_vllms_table_has_graphs_for_the_rungs_of_our_ladder() -> None:
    arguments = setup_for("eagle-vllm", GPU).arguments
    schedule = arguments["speculative_config"]["num_speculative_tokens_per_batch_size"]
    sizes = arguments["compilation_config"]["cudagraph_capture_sizes"]
    for k in {k for _, _, k in schedule}:
        assert [size for size in sizes if size % (1 + k) == 0]
    assert {k for _, _, k in schedule} >= {0, GPU.kmax}
    assert arguments["scheduler_cls"].endswith(".AsyncTableScheduler")
    sync = setup_for("eagle-vllm-sync", GPU).arguments
    assert sync["scheduler_cls"].endswith(".SyncTableScheduler")
    assert sync["async_scheduling"] is False


def test_engines_that_differ_only_on_a_gpu_are_one_on_a_cpu() -> None:
    def equal(machine: Machine, *keys: str) -> bool:
        return len({msgspec.json.encode(setup_for(key, machine)) for key in keys}) == 1

    assert equal(CPU, "eagle-ours", "eagle-ours-sync", "eagle-ladder")
    assert equal(CPU, "none", "none-long")
    assert not equal(CPU, "eagle-ladder", "eagle-quiet")
    assert not equal(GPU, "eagle-ours", "eagle-ladder")
    assert not equal(GPU, "none", "none-long")


def test_the_ladder_is_what_runs_without_varlen_graphs() -> None:
    configured = setup_for("eagle-ladder", GPU).arguments["additional_config"]
    assert configured["adaptive_spec"]["varlen_graphs"] is False
    assert "varlen_graphs" not in setup_for("eagle-ours", GPU).arguments["additional_config"]


@pytest.mark.parametrize("key", ["", "eagle", "medusa-ours", "eagle-best", "none-sync"])
def test_an_unknown_key_is_named(key: str) -> None:
    with pytest.raises(ValueError, match="is no engine"):
        setup_for(key, GPU)
