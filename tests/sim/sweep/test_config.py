"""Configurations that can't be used are refused in one line, before anything runs."""

import pytest

from adaptive_spec.errors import AdaptiveSpecError, ConfigError, DataError, PolicyError
from adaptive_spec.sim.sweep.config import load_sweep_config
from adaptive_spec.sim.sweep.run import plan_sweep
from tests.refused import refused
from tests.sim.sweep.fake_sweep import CONFIG, call, write_sweep


def changed(old: str, new: str) -> str:
    assert old in CONFIG
    return CONFIG.replace(old, new)


def test_a_sweep_has_three_seeds_unless_it_says_otherwise(tmp_path):
    plan = plan_sweep(write_sweep(tmp_path, changed("seeds: 2\n", "")))
    assert {cell.name.seed for cell in plan.cells} == {0, 1, 2}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (CONFIG + "polices: [off]\n", "polices"),
        (changed("max_draft_tokens: 3", "max_drafts: 3"), "max_drafts.*keys are max_draft_tokens"),
        (changed("tokens: 300", "token: 300"), "token.*keys are load"),
        (changed("max_draft_tokens: 3", "max_draft_tokens: 0"), "max_draft_tokens"),
        (changed("seeds: 2", "seeds: 0"), "seeds"),
        (changed("seeds: 2", "seeds: [1, 1]"), "seeds.*1 stands there twice"),
        (changed("  - off\n", "  - off\n  - off\n"), "'off' stands there twice"),
        (changed("tokens: 300", "drafters: [ngrams]"), "'ngrams' is not among `drafters`"),
        (changed("drafters: [eagle]", "drafters: []"), "drafters"),
        (CONFIG + "engine_variants: {late: {delays: 1}}\n", "delays.*engine_variants.late"),
        ("", "expected keys"),
        ("policies: [", "not valid .yaml"),
        ("\x00", "not valid .yaml"),
        ("- a\n", "expected keys"),
    ],
)
def test_a_wrong_tree_names_file_and_key(tmp_path, config, complaint):
    path = write_sweep(tmp_path, config)
    with refused(ConfigError, "config.yaml", match=complaint):
        load_sweep_config(path)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("- off", "- of", "unknown policy 'of'"),
        ("static:k=2", "static:q=2", "config.yaml.*static.*q"),
        ("[eagle]", "[eagel]", "eagel"),
        ("[h100-llama-8b]", "[h100-lama-8b]", "h100-lama-8b"),
        ("acceptance.jsonl", "acceptence.jsonl", "acceptence.jsonl"),
        ("closed:2", "closed:two", "closed:two"),
        ("tokens: 250\n", "", "load 'closed:2' never ends"),
        ("acceptance.jsonl}", "{files: [acceptance.jsonl], drafters: []}}", "nothing to run"),
    ],
)
def test_what_a_config_names_is_opened_before_anything_runs(tmp_path, old, new, complaint):
    path = write_sweep(tmp_path, changed(old, new))
    with refused(AdaptiveSpecError, match=complaint):
        plan_sweep(path)
    result = call(path, "--output", tmp_path / "out")
    assert isinstance(result.exception, AdaptiveSpecError)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("max_draft_tokens: 3", "max_draft_tokens: 3, level: 0, ladder: [0, 5]", "ladder"),
        ("[eagle]\n", "[eagle, lookahead]\nengine_variants: {a: {max_draft_tokens: 9}}\n", "Kmax"),
        (
            "[eagle]\nhardware: [h100-llama-8b]",
            "[eagle, draft_model]\nhardware: [h100-llama-8b, 'roofline:h100:qwen3-32b']",
            "draft_model.* no room for KV",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_first(tmp_path, old, new, complaint):
    path = write_sweep(tmp_path, changed(old, new))
    with refused(ConfigError, match=rf"config.yaml: made-up / .*{complaint}"):
        plan_sweep(path)


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        load_sweep_config(tmp_path / "missing.yaml")


def test_a_bare_off_is_the_policy_off(tmp_path):
    assert load_sweep_config(write_sweep(tmp_path)).policy_entries()[0].policy == "off"


def test_axes_multiply_and_restrictions_take_cells_out(tmp_path):
    config = changed("drafters: [eagle]", "drafters: [eagle, ngram]")
    config = config.replace("tokens: 300", "tokens: 300, drafters: [ngram]")
    config += "engine_variants: {full: {}, uniform: {level: 0, delay: 1}}\n"
    cells = plan_sweep(write_sweep(tmp_path, config)).cells
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names) == 2 * 2 * 2 + 2 * 2
    assert not [n for n in names if n.load == "poisson:20" and n.drafter == "eagle"]
    for cell in cells:
        assert cell.scenario.engine.delay == (cell.name.engine == "uniform")
        assert cell.scenario.tokens == (300 if cell.name.load == "poisson:20" else 250)


def test_paths_start_from_the_config_and_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "arrivals.csv").write_text(
        "arrival_s,input_tokens,output_tokens\n0.0,10,5\n1.0,10,5\n"
    )
    path = write_sweep(tmp_path, changed("poisson:20", "${data}/arrivals.csv@rate=2"))
    monkeypatch.setenv("ADAPTIVE_SPEC_DATA", str(tmp_path / "data"))
    monkeypatch.chdir("/")
    plan = plan_sweep(path)
    loads = {cell.name.load: cell.scenario.load for cell in plan.cells}
    assert loads["${data}/arrivals.csv@rate=2"] == f"{tmp_path}/data/arrivals.csv@rate=2"
    assert plan.cells[0].scenario.acceptance == (str(tmp_path / "acceptance.jsonl"),)
    monkeypatch.setenv("ADAPTIVE_SPEC_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere"):
        plan_sweep(path)


PHASES = (
    "{files: [acceptance.jsonl], phases: [{at: 9, files: ['model:poor']}, {at: 3, files: [x]}]}"
)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("acceptance.jsonl", PHASES, "`phases` must ascend"),
        ("acceptance.jsonl", "{files: [a], confidence: seen}", "confidence"),
        ("static:k=2", "static:k=4", "'static:k=4': K 4 exceeds Kmax 3"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, old, new, complaint):
    with pytest.raises((ConfigError, PolicyError), match=complaint):
        plan_sweep(write_sweep(tmp_path, changed(old, new)))


def test_each_cell_runs_its_policies_and_the_oracles_once(tmp_path):
    plan = plan_sweep(write_sweep(tmp_path))
    assert len(plan.tasks) == len(plan.cells) * (1 + len(plan.config.policies))
    assert len({task.key for task in plan.tasks}) == len(plan.tasks)


def test_confidence_is_hidden_recorded_or_made(tmp_path):
    made = "{made: {files: ['model:good'], confidence: 0.85}"
    sets = made + ", x: {files: ['model:poor'], confidence: hidden}}"
    config = write_sweep(tmp_path, changed("{made-up: acceptance.jsonl}", sets))
    found = {c.name.acceptance: c.scenario for c in plan_sweep(config).cells}
    assert found["made"].confidence_auc == 0.85
    assert found["made"].acceptance_data().confidence is not None
    assert found["x"].hide_confidence
