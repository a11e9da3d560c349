"""A change inside any file that a sweep reads changes its digest; where the files lie does not."""

import json
import shutil
from pathlib import Path

import pytest

from adaptive_spec.sim.commands.sweep import _warn_of_mismatches
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.sweep.cells import plan_cells, policy_texts
from adaptive_spec.sim.sweep.config import load_sweep_config
from adaptive_spec.sim.sweep.input_files import digest_of
from adaptive_spec.sim.sweep.run import plan_sweep
from tests.sim.sweep.fake_sweep import CONFIG, write_sweep

ARRIVALS = "arrival_s,input_tokens,output_tokens\n0.0,10,5\n0.1,10,5\n"


def digest(config: Path) -> list[str]:
    """Digests of all scenarios and policies, which nobody need be able to run."""
    loaded = load_sweep_config(config)
    cells = plan_cells(loaded, config.parent)
    texts = policy_texts(loaded, cells, config.parent)
    choices = [digest_of(parse_policy(text).options) for _, _, text in texts]
    return [digest_of(cell.scenario) for cell in cells] + choices


def with_load(load: str) -> str:
    return CONFIG.replace('"closed:2"', f'"{load}"')


def with_policy(policy: str) -> str:
    return CONFIG.replace("  - off\n", f"  - '{policy}'\n")


@pytest.mark.parametrize(
    ("config", "file", "others"),
    [
        pytest.param(CONFIG, "acceptance.jsonl", {}, id="acceptance"),
        pytest.param(
            CONFIG.replace("acceptance.jsonl", "recorded"),
            "recorded/steps-0.jsonl",
            {},
            id="acceptance in a trace folder",
        ),
        pytest.param(with_load("arrivals.csv"), "arrivals.csv", {}, id="load"),
        pytest.param(with_load("arrivals.csv@rate=2"), "arrivals.csv", {}, id="load with options"),
        pytest.param(with_load("a@b/c@d.csv@rate=2"), "a@b/c@d.csv", {}, id="load path with an @"),
        pytest.param(with_load("trace"), "trace/steps-3.jsonl", {}, id="load trace folder"),
        pytest.param(with_load("shape.yaml"), "shape.yaml", {}, id="description"),
        pytest.param(
            with_load("loads/shape.yaml"),
            "loads/more/arrivals.csv",
            {"loads/shape.yaml": "rate: {base: more/arrivals.csv@first=5, pieces: []}"},
            id="file in a description",
        ),
        pytest.param(
            with_load("tenants.yaml"),
            "more/trace/steps-0.jsonl",
            {
                "tenants.yaml": "tenants: [{name: a, load: tenants.yaml}, {load: more/in.yaml}]",
                "more/in.yaml": "rate: {base: trace}",
            },
            id="trace folder in a description in a description",
        ),
        pytest.param(CONFIG.replace("h100-llama-8b", "mine.json"), "mine.json", {}, id="hardware"),
        pytest.param(
            with_policy("goodput:profile=costs.json"), "costs.json", {}, id="profile of a policy"
        ),
        pytest.param(
            with_policy('mine:Policy:files=[{"a": "costs.json"}]'),
            "costs.json",
            {},
            id="file in an option of a policy",
        ),
    ],
)
def test_a_change_of_the_same_size_is_seen(tmp_path, monkeypatch, config, file, others):
    # Policies open their files from the working directory, not from the configuration's.
    monkeypatch.chdir(tmp_path)
    path = write_sweep(tmp_path, config)
    for name, content in (others | {file: ARRIVALS}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    before = digest(path)
    assert digest(path) == before
    (tmp_path / file).write_text(ARRIVALS.replace("0.1", "0.2"))
    assert digest(path) != before
    (tmp_path / file).write_text(ARRIVALS)
    assert digest(path) == before


def test_files_of_one_name_that_change_places_are_seen(tmp_path):
    for folder, content in (("a", "1"), ("b", "2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text(content)
    path = write_sweep(tmp_path, CONFIG.replace('["closed:2"', '[a/x.csv, "b/x.csv@rate=2"'))
    before = digest(path)
    (tmp_path / "a" / "x.csv").write_text("2")
    (tmp_path / "b" / "x.csv").write_text("1")
    assert digest(path) != before


def test_a_sweep_may_be_moved_with_its_data(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "arrivals.csv").write_text(ARRIVALS)
    path = write_sweep(tmp_path / "here", with_load("arrivals.csv@rate=2"))
    there = Path(shutil.copytree(tmp_path / "here", tmp_path / "there"))
    assert digest(path) == digest(there / path.name)


def test_the_output_of_a_sweep_is_no_data_whatever_its_name(tmp_path):
    (tmp_path / "tenants.yaml").write_text("tenants: [{name: chat, load: closed:2}]")
    path = write_sweep(tmp_path, with_load("tenants.yaml"))
    before = digest(path)
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "runs.jsonl").write_text("{}\n")
    assert digest(path) == before


def test_texts_that_are_no_files_are_left_to_their_readers(tmp_path):
    config = with_load("loads.yaml").replace("made-up: acceptance.jsonl", f"long: {'x' * 5000}")
    path = write_sweep(tmp_path, config)
    for content in ("[", "\x00", "a: ['', closed:two, trace.csv@, @@, 3, null]"):
        (tmp_path / "loads.yaml").write_text(content)
        assert digest(path)


def test_what_is_done_to_a_file_of_a_load_is_said_once(tmp_path, capsys):
    rows = [
        {"timestamp": 3000 * (row // 5), "input_length": 9, "output_length": 9}
        for row in range(200)
    ]
    load = tmp_path / "load.jsonl"
    load.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = write_sweep(tmp_path)
    file.write_text(file.read_text().replace('"closed:2"', f'"{load}"'))
    _warn_of_mismatches(plan_sweep(file))
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert "5 requests arrive at once every 3 s" in line
