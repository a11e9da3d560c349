"""A change planted in a copy of vLLM's source takes exactly the feature that needs it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from adaptive_spec.adapters.vllm import facts, worker_facts
from adaptive_spec.adapters.vllm.capability import detect
from adaptive_spec.adapters.vllm.facts import SOURCE
from adaptive_spec.engines.source_check import EngineSource
from tests.planted_tree import PlantedTree

pytestmark = pytest.mark.engine


class Change(NamedTuple):
    """Replace a pattern in a file, and lose a feature."""

    lost: str
    file: str
    pattern: str
    replacement: str


CHANGES = {
    "renamed parameter of the worker": Change(
        facts.COLD,
        "v1/worker/gpu_model_runner.py",
        r"(def propose_draft_token_ids\(\s+self,\s+)scheduler_output",
        r"\1output",
    ),
    "removed method of the engine": Change(
        facts.WEIGHTS, "v1/engine/core.py", "def set_weight_version", "def _set_weight_version"
    ),
    "grammar asked for before the step": Change(
        facts.AHEAD, "v1/engine/core.py", r"get_grammar_bitmask\(", "grammar_bitmask("
    ),
    "renamed state of the model runner": Change(
        facts.RECURRENT, "v1/worker/gpu_model_runner.py", "zero_draft_decode_mask", "mask"
    ),
    "renamed loop of V2": Change(
        facts.V2_DEPTH,
        f"{worker_facts.V2}/spec_decode/target_dependent_ar/speculator.py",
        "_fused_multi_step_decode",
        "_decode",
    ),
    "no client of all engines": Change(
        facts.SWITCH, "v1/engine/core_client.py", "(_call_utility|call_utility_all)_async", "_other"
    ),
    "another number of drafts in the signal of V2": Change(
        worker_facts.V2_SIGNAL,
        f"{worker_facts.V2}/spec_decode/acceptance_estimator.py",
        r"(def predict\(\s+self,\s+)logits",
        r"\1all_logits",
    ),
    "schedule of K no longer captured": Change(
        facts.LADDER,
        f"{worker_facts.V2}/cudagraph_utils.py",
        "uses_dynamic_speculative_decoding",
        "is_dynamic",
    ),
    "drafts handed over elsewhere": Change(
        worker_facts.SIGNAL, "v1/worker/gpu_worker.py", "take_draft_token_ids", "take_drafts"
    ),
    "drafts kept elsewhere": Change(
        worker_facts.COPIES, "v1/worker/gpu_model_runner.py", "prev_num_spec_tokens", "num_before"
    ),
    "text of V2 kept elsewhere": Change(
        worker_facts.V2_COPIES, f"{worker_facts.V2}/states.py", "self.total_len", "self.length"
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> PlantedTree:
    return PlantedTree(SOURCE, tmp_path_factory.mktemp("planted") / "vllm")


@pytest.fixture
def tree(copy: PlantedTree, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedTree]:
    yield from copy.used(monkeypatch)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_takes_exactly_the_feature_that_needs_it(tree: PlantedTree, name: str) -> None:
    before = set(SOURCE.require([facts.BASE], tree.folder).missing)
    lost, *change = CHANGES[name]
    tree.plant(*change)
    assert set(SOURCE.require([facts.BASE], tree.folder).missing) - before == {lost}


def test_one_of_two_calls_is_enough_to_reach_every_engine(tree: PlantedTree) -> None:
    tree.plant("v1/engine/core_client.py", "call_utility_all_async", "call_others")
    assert facts.SWITCH not in SOURCE.require([facts.BASE], tree.folder).missing


def test_what_is_lost_is_lost_in_the_capability_and_said(
    tree: PlantedTree, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engines import prepare_environment, speculative_config

    prepare_environment()
    from vllm.engine.arg_utils import EngineArgs

    def capability() -> tuple[dict[str, Any], str]:
        arguments = EngineArgs(
            model=str(models["target"]),
            max_model_len=256,
            enforce_eager=True,
            speculative_config=speculative_config(models, "draft_model"),
            additional_config={"adaptive_spec": {"policy": "static"}},
        )
        found = detect(arguments.create_engine_config())
        assert found.capability is not None
        return msgspec.structs.asdict(found.capability), " ".join(found.notes)

    whole, _ = capability()
    tree.plant(*CHANGES["renamed parameter of the worker"][1:])
    monkeypatch.setattr(EngineSource, "installed_folder", lambda _: tree.folder)
    lowered, notes = capability()
    assert {key for key in whole if whole[key] != lowered[key]} == {"cold_off"}
    assert f"this vLLM lacks {facts.COLD} (GPUModelRunner.propose_draft_token_ids" in notes
