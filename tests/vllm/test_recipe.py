"""`doctor --recipe`: a serve command in, what would be steered out."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.config import Config
from adaptive_spec.errors import ConfigError
from tests.refused import refused

pytestmark = pytest.mark.engine

NGRAM = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'"""


@pytest.fixture(autouse=True)
def _environment() -> None:
    from engines import prepare_environment

    prepare_environment()


def answers(
    command: str, config: str | None = '{"adaptive_spec": {}}', *, trust: bool = False
) -> tuple[bool, dict[str, str]]:
    """The report for a command with this `--additional-config`."""
    from adaptive_spec.adapters.vllm.recipe import judge

    given = f" --additional-config '{config}'" if config else ""
    text = command.partition("  #")
    report = judge(f"{text[0]}{given}{''.join(text[1:])}", trust=trust)
    rows: dict[str, str] = {}
    for key, said in report.rows:
        rows[key] = f"{rows[key]}; {said}" if key in rows else said
    return report.steered, rows


def configuration(command: str) -> Any:
    """What vLLM makes of it."""
    from adaptive_spec.adapters.vllm.pasted_command import read_pasted
    from adaptive_spec.adapters.vllm.recipe import _configuration

    return _configuration(read_pasted(command))[0]


def test_a_whole_command_is_understood(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_own")
    monkeypatch.setenv("VLLM_USE_V1", "")  # so that it is as before afterwards
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    command = (
        "VLLM_USE_V1=1 HF_TOKEN=hf_abc HF_ENDPOINT=http://127.0.0.1:1 "
        f"vllm serve {models['target']} --max-model-len 256 \\\n"
        f"  --enforce-eager --port 8123 {NGRAM}  # a comment"
    )
    steered, rows = answers(command)
    assert steered
    assert rows["steered"] == "K per request, and draft depth"
    assert rows["speculation"] == "ngram, Kmax 4, model runner V1"
    assert "cpu" in rows["engine"]
    assert rows["environment"] == "VLLM_USE_V1=1"
    assert rows["not taken over"] == "HF_ENDPOINT, HF_TOKEN"
    assert os.environ["HF_TOKEN"] == "hf_own"
    assert "HF_ENDPOINT" not in os.environ


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

    def in_a_pipeline(*given: Any, **more: Any) -> Any:
        config, *rest = made(*given, **more)
        config.parallel_config.pipeline_parallel_size = 2
        return config, *rest

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
        return " ".join(recipe.kept_at_zero(configuration(f"{command} '{json.dumps(drafts)}'")))

    assert kept("ngram") == ""
    draft_model = kept("draft_model", model=str(models["draft"]))
    assert "weights of the drafter" in draft_model
    sizes = {
        name: json.loads((models[name] / "config.json").read_bytes())
        for name in ("target", "draft")
    }
    target, drafter = (
        sizes[name]["num_hidden_layers"] * sizes[name]["hidden_size"] ** 2
        for name in ("target", "draft")
    )
    assert f"about {drafter / target:.1%} more work until the first token" in draft_model
    assert "2 tokens of KV behind each running request" in draft_model
    assert "last cached block" in kept("eagle3", model=str(models["eagle3"]))


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_the_drafters_share_of_the_kv_memory_is_what_an_engine_loses(
    shelf: Any, method: str
) -> None:
    from adaptive_spec.adapters.vllm.recipe import _drafters_kv

    def blocks(engine: Any) -> int:
        return int(engine.scheduler.kv_cache_manager.block_pool.num_gpu_blocks)

    own = {"num_gpu_blocks_override": None}
    never = blocks(shelf.get(**own))
    engine = shelf.get(method, adaptive={"policy": "off"}, **own)
    lost = 1.0 - blocks(engine) / never
    assert lost == pytest.approx(_drafters_kv(engine.scheduler.vllm_config), abs=0.002)
    assert lost > 0.01


@pytest.mark.every_version
def test_a_block_whose_hash_looks_ahead_is_kept(models: dict[str, Path]) -> None:
    """vLLM 0.33; with a KV connector, and before, the last cached block is computed anew."""
    from adaptive_spec.adapters.vllm import recipe

    drafts = {"method": "eagle3", "model": str(models["eagle3"]), "num_speculative_tokens": 2}
    config = configuration(
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
    assert rows["table of K"].startswith("runs in steps that the plugin does not decide")
    _, rows = answers(f"{command} --speculative-config '{json.dumps(drafts)}'")
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
        f"--speculative-config '{json.dumps(drafts)}'",
        '{"adaptive_spec": {"second_source": {}}}',
    )
    assert rows["second source"].startswith(says)


@pytest.mark.parametrize(
    "options",
    [
        "--max_model_len 256 --speculative_config '{drafts}'",
        "--max-model-len=256 -sc '{drafts}' --async-scheduling",
        "--max-model-len 256 --speculative-config.method draft_model "
        "--speculative-config.model {draft} --speculative_config.num_speculative_tokens 4",
        "--config {file}",
    ],
)
def test_every_form_that_vllm_takes_is_taken(
    models: dict[str, Path], tmp_path: Path, options: str
) -> None:
    drafts = {"method": "draft_model", "model": str(models["draft"]), "num_speculative_tokens": 4}
    file = tmp_path / "server.yaml"
    file.write_text(f"max-model-len: 256\nspeculative-config: '{json.dumps(drafts)}'\n")
    for name, value in (
        ("{drafts}", json.dumps(drafts)), ("{draft}", models["draft"]), ("{file}", file)
    ):  # fmt: skip
        options = options.replace(name, str(value))
    steered, rows = answers(f"vllm serve {models['target']} {options}")
    assert steered
    assert rows["speculation"] == "draft_model, Kmax 4, model runner V1"
    assert "left out" not in rows


def test_misspelt_and_unknown_options_are_named(models: dict[str, Path]) -> None:
    command = f"vllm serve {models['target']} --max-model-len 256"
    with pytest.raises(ConfigError, match=r"--speculative-confg .*did you mean --speculative-con"):
        answers(f"{command} {NGRAM.replace('config', 'confg')}")
    steered, rows = answers(f"{command} {NGRAM} --no-such-thing 5")
    assert steered
    assert rows["left out"] == "--no-such-thing 5: no option of this vLLM"


def test_a_drafter_that_is_shorter_than_the_target_is_said(models: dict[str, Path]) -> None:
    """By `--recipe`, and in the line that a server logs at its start."""
    from adaptive_spec.adapters.vllm.capability import detect
    from adaptive_spec.engines.support import controller_for, start_line

    drafts = {"method": "draft_model", "model": str(models["draft"]), "num_speculative_tokens": 4}
    command = f"vllm serve {models['target']} --max-model-len 512 --speculative-config"
    whole, short = (
        f"{command} '{json.dumps(drafts | more)}'" for more in ({}, {"max_model_len": 256})
    )
    assert "note" not in answers(whole)[1]
    said = "the drafter takes 256 of 512 tokens: with a longer request in the batch vLLM drafts for"
    assert answers(short)[1]["note"].startswith(said)
    found = detect(configuration(short), expected=True)
    controller = controller_for(found, Config(), logging.getLogger("test"))
    assert said in start_line(found, controller, details=())


def test_a_model_of_a_known_recipe_is_answered_without_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    drafts = '{"method": "eagle3", "model": "SOME/HEAD", "num_speculative_tokens": 5}'
    command = f"vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config '{drafts}'"
    steered, rows = answers(command)
    assert steered
    assert rows["steered"] == "eagle3, Kmax 5: K per request, and draft depth"
    assert "Hopper: K per request" in rows["full graphs, 0.33.0"]
    assert "on this machine" in rows["note"]
    with pytest.raises(ConfigError, match="makes no configuration"):
        answers(command.replace("Llama-3.1-8B-Instruct", "another"))


def test_variables_under_which_vllm_refuses_are_said(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", os.environ.get("VLLM_CPU_KVCACHE_SPACE", ""))
    command = f"vllm serve {models['target']} --max-model-len 1048576 {NGRAM}"
    with pytest.raises(ConfigError, match=r"machine: .*is greater than the derived"):
        answers(command)
    command = f"export VLLM_CPU_KVCACHE_SPACE=1 HF_TOKEN=hf_abc\n{command}"
    with pytest.raises(ConfigError, match=r"with VLLM_CPU_KVCACHE_SPACE=1: .*great"):
        answers(command)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "nothing: no configuration of the plugin; with --additional-config"),
        ('{"other": 1}', "nothing: no configuration of the plugin"),
        ('{"adaptive_spec": {"mode": "shadow"}}', "nothing: mode shadow only records decisions"),
    ],
)
def test_it_says_what_will_happen_and_what_could(
    models: dict[str, Path], config: str | None, said: str
) -> None:
    steered, rows = answers(f"vllm serve {models['target']} --max-model-len 256 {NGRAM}", config)
    assert not steered
    assert rows["steered"].startswith(said)
    assert rows["steered"].endswith(": K per request, and draft depth")


def test_what_names_code_is_dropped_unless_it_is_trusted(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose repository has code, and options that import a module."""
    mark = tmp_path / "ran"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted.py").write_text(f"open({str(mark)!r}, 'a').write('x')\nclass C: pass\n")
    settings = json.loads((models["target"] / "config.json").read_bytes())
    settings["auto_map"] = {"AutoConfig": "configuration_planted.Planted"}
    settings["model_type"] = "planted"
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(settings))
    (model / "configuration_planted.py").write_text(
        f"open({str(mark)!r}, 'a').write('x')\nfrom transformers import LlamaConfig\n"
        "class Planted(LlamaConfig):\n    model_type = 'planted'\n"
    )
    with pytest.raises(ConfigError, match="makes no configuration"):
        answers(f"vllm serve {model} --trust-remote-code --skip-tokenizer-init {NGRAM}")
    command = f"vllm serve {models['target']} --max-model-len 256 {NGRAM}"
    file = tmp_path / "server.yaml"
    file.write_text("worker-extension-cls: planted.C\n")
    steered, rows = answers(
        f"{command} --trust-remote-code --middleware planted.C --logits_processors planted.C "
        f"--config {file}",
        '{"adaptive_spec": {"policy": "planted:C"}}',
    )
    assert steered
    assert rows["dropped"].startswith(
        "--logits-processors, --middleware, --trust-remote-code, --worker-extension-cls: "
    )
    assert "policy planted:C, which is code" in rows["dropped"]
    one = {"kv_connector": "C", "kv_connector_module_path": "planted", "kv_role": "kv_both"}
    several = {"kv_connector": "MultiConnector", "kv_role": "kv_both"} | {
        "kv_connector_extra_config": {"connectors": [one]}
    }
    for connector in (one, several):
        with pytest.raises(ConfigError, match=r"dropped, .*kv_connector_module_path of --kv-tra"):
            answers(f"{command} --kv-transfer-config '{json.dumps(connector)}'")
    assert not mark.exists()
    steered, rows = answers(f"{command} --trust-remote-code", trust=True)
    assert steered
    assert "dropped" not in rows
    assert not mark.exists()


def test_another_scheduler_is_refused_as_the_server_does(models: dict[str, Path]) -> None:
    steered, rows = answers(
        f"vllm serve {models['target']} --max-model-len 256 {NGRAM} --scheduler-cls a.B"
    )
    assert not steered
    assert rows["refused"].startswith("--scheduler-cls a.B: the plugin brings its own")


@pytest.mark.parametrize(
    "command", ["vllm serve /no/such/model", "vllm serve 'half quoted", "serve --max-model-len x"]
)
def test_a_bad_command_is_one_line(command: str) -> None:
    with refused(ConfigError, "--recipe"):
        answers(command)
