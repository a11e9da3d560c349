"""`doctor --recipe`: a serve command in, what would be steered out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.errors import ConfigError

pytestmark = pytest.mark.engine

NGRAM = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'"""


@pytest.fixture(autouse=True)
def _environment() -> None:
    from engines import prepare_environment

    prepare_environment()


def answers(command: str) -> tuple[bool, dict[str, str]]:
    from adaptive_spec.adapters.vllm.recipe import judge

    report = judge(command)
    return report.steered, dict(report.rows)


def test_a_whole_command_is_understood(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_VARIABLE", raising=False)
    command = (
        f"SOME_VARIABLE=1 vllm serve {models['target']} --max-model-len 256 \\\n"
        f"  --enforce-eager --port 8123 {NGRAM}  # a comment"
    )
    steered, rows = answers(command)
    assert steered
    assert rows["steered"] == "K per request, and draft depth"
    assert rows["speculation"] == "ngram, Kmax 4, model runner V1"
    assert "cpu" in rows["engine"]


def test_without_speculation_nothing_is_steered(models: dict[str, Path]) -> None:
    steered, rows = answers(f"--model {models['target']} --max-model-len 256")
    assert not steered
    assert "add --speculative-config" in rows["steered"]


def test_the_reason_for_watching_only_is_named(models: dict[str, Path]) -> None:
    lossy = NGRAM.replace("}", ', "rejection_sample_method": "synthetic"}')
    lossy = lossy.replace("}", ', "synthetic_acceptance_rates": [0.5, 0.4, 0.3, 0.2]}')
    steered, rows = answers(f"vllm serve {models['target']} --max-model-len 256 {lossy}")
    assert not steered
    assert "rejection_sample_method=synthetic" in rows["steered"]


def test_a_pair_with_which_vllms_output_is_wrong_is_refused(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm#52071: this machine starts no pipeline, so the parsed configuration gets one."""
    from adaptive_spec.adapters.vllm import recipe

    command = f"vllm serve {models['target']} --max-model-len 256 {NGRAM}"
    assert "refused" not in answers(command)[1]
    made = recipe._configuration

    def in_a_pipeline(given: str) -> Any:
        config = made(given)
        config.parallel_config.pipeline_parallel_size = 2
        return config

    monkeypatch.setattr(recipe, "_configuration", in_a_pipeline)
    steered, rows = answers(f"{command} --no-async-scheduling")
    assert not steered
    assert "vllm#52071" in rows["refused"]
    assert "wrong" in rows["refused"]


def test_it_says_what_no_switch_at_run_time_takes_back(models: dict[str, Path]) -> None:
    """vllm#49548, #51575; a real engine's figures are in test_upstream_reports, test_families."""
    from adaptive_spec.adapters.vllm import recipe

    def kept(method: str, **more: Any) -> str:
        drafts = {"method": method, "num_speculative_tokens": 2} | more
        command = f"vllm serve {models['target']} --max-model-len 256 --speculative-config"
        return " ".join(
            recipe.kept_at_zero(recipe._configuration(f"{command} '{json.dumps(drafts)}'"))
        )

    assert kept("ngram") == ""
    assert "memory of the drafter" in kept("draft_model", model=str(models["draft"]))
    assert "last cached block" in kept("eagle3", model=str(models["eagle3"]))


@pytest.mark.every_version
def test_a_block_whose_hash_looks_ahead_is_kept(models: dict[str, Path]) -> None:
    """vLLM 0.33; with a KV connector, and before, the last cached block is computed anew."""
    from adaptive_spec.adapters.vllm import recipe

    drafts = {"method": "eagle3", "model": str(models["eagle3"]), "num_speculative_tokens": 2}
    config = recipe._configuration(
        f"vllm serve {models['target']} --max-model-len 256 --enable-prefix-caching "
        f"--speculative-config '{json.dumps(drafts)}'"
    )
    looks_ahead = getattr(config, "num_hash_lookahead_tokens", 0) > 0
    assert ("last cached block" in " ".join(recipe.kept_at_zero(config))) is not looks_ahead


def test_ranks_of_a_dense_model_are_engines_of_their_own(models: dict[str, Path]) -> None:
    drafts = {"method": "draft_model", "model": str(models["draft"]), "num_speculative_tokens": 3}
    table = drafts | {"num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]]}
    command = f"vllm serve {models['target']} --max-model-len 256 --max-num-seqs 8"
    _, rows = answers(
        f"{command} --data-parallel-size 2 --speculative-config '{json.dumps(table)}'"
    )
    assert rows["steered"] == "K per request, and draft depth"
    assert "vLLM drops it" in rows["table of K"]
    _, rows = answers(f"{command} --speculative-config '{json.dumps(table)}'")
    assert "table of K" not in rows


def test_it_says_what_a_larger_kmax_would_cost(models: dict[str, Path]) -> None:
    drafts = {"method": "eagle3", "model": str(models["eagle3"]), "num_speculative_tokens": 2}
    command = (
        f"vllm serve {models['target']} --max-model-len 256 --enforce-eager --max-num-seqs 8 "
        f"--speculative-config '{json.dumps(drafts)}'"
    )
    _, rows = answers(command)
    assert rows["Kmax"].startswith("Kmax 2 can be raised: num_speculative_tokens 4")
    assert "2 more KV tokens per running request (at most 16)" in rows["Kmax"]
    _, rows = answers(command.replace('"num_speculative_tokens": 2', '"num_speculative_tokens": 4'))
    assert "Kmax" not in rows


@pytest.mark.parametrize(("method", "says"), [("eagle", "suffix"), ("ngram", "no: ngram")])
def test_it_says_whether_drafts_can_be_looked_up(
    models: dict[str, Path], method: str, says: str
) -> None:
    pytest.importorskip("arctic_inference", reason="the gate refuses `second_source` without it")
    drafts = {"method": method, "num_speculative_tokens": 2}
    drafts |= {"model": str(models["eagle"])} if method == "eagle" else {}
    _, rows = answers(
        f"vllm serve {models['target']} --max-model-len 256 --enforce-eager --max-num-seqs 8 "
        f"--speculative-config '{json.dumps(drafts)}' "
        """--additional-config '{"adaptive_spec": {"second_source": {}}}'"""
    )
    assert rows["second source"].startswith(says)


@pytest.mark.parametrize(
    "command", ["vllm serve /no/such/model", "vllm serve 'half quoted", "serve --max-model-len x"]
)
def test_a_bad_command_is_one_line(command: str) -> None:
    with pytest.raises(ConfigError, match="--recipe") as caught:
        answers(command)
    assert "\n" not in str(caught.value)
