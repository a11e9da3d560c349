"""What a new user types in the first hour."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adaptive_spec import Capability, Config, Controller, Level, available_policies
from adaptive_spec.commands.doctor import Configured, Report, verdict
from adaptive_spec.commands.new_policy import make_package
from adaptive_spec.commands.status_source import StatusSource
from adaptive_spec.config import parse_config
from adaptive_spec.engines.doctor_rows import EngineReport, engine_named
from adaptive_spec.errors import AdaptiveSpecError, ConfigError, DataError, PolicyError
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.commands.showcase import closing_sentence, lost_to_none, simulate_all


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "adaptive_spec", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_help_groups_the_commands_and_shows_examples():
    shown = call("--help").stdout
    for group in ("Serve", "Simulate", "Extend"):
        assert f"─ {group} ─" in shown
    assert "adaptive-spec top localhost:8000" in shown


def test_config_takes_the_object_that_every_page_shows(tmp_path: Path):
    shown = '{"adaptive_spec": {"mode": "shadow", "shadow_share": 0.02}}'
    file = tmp_path / "c.json"
    file.write_text(shown)
    for given in (shown, file):
        found = json.loads(call("config", given, "--json").stdout)
        assert (found["mode"], found["shadow_share"]) == ("shadow", 0.02)
    wrapped = {"adaptive_spec": {"policy": "static"}}
    assert parse_config(wrapped, source="test") == parse_config({"policy": "static"}, source="test")


def test_a_mistyped_name_is_answered_with_the_nearest():
    with pytest.raises(PolicyError, match=r"did you mean goodput\?"):
        build_policy("godput")
    for name in ("h100-lama-8b", "h100"):
        assert "did you mean h100-llama-8b?" in call("replay", "--hardware", name).stderr
    assert "did you mean mode?" in call("config", '{"mod": "on"}').stderr


def report(*engines: EngineReport, problems: tuple[str, ...] = ()) -> Report:
    return Report(
        version="0",
        python="3",
        numpy="2",
        numba=None,
        engines=list(engines),
        configured=Configured(""),
        policies=[],
        problems=list(problems),
    )


READY = EngineReport("vllm", "0.32.0", True, "executed: V1", "not by environment")
REFUSING = EngineReport("vllm", "0.32.0", True, "", "", refusal="VLLM_PLUGINS leaves it out")
UNKNOWN = EngineReport("vllm", "0.1.0", False, "not a known version", "")
ABSENT = EngineReport("vllm", None, False, "not installed", "")


@pytest.mark.parametrize(
    ("found", "engine", "words", "ready"),
    [
        (report(READY), "vllm", "ready, vllm 0.32.0", True),
        (report(REFUSING), None, "VLLM_PLUGINS leaves it out", False),
        (report(UNKNOWN), None, "not a known version", False),
        (report(ABSENT), "vllm", "not installed", False),
        (report(ABSENT), None, "ready for simulation", True),
        (report(READY, problems=("x",)), None, "to mend", False),
    ],
)
def test_the_doctor_ends_with_a_verdict_that_a_dockerfile_can_use(found, engine, words, ready):
    said, ok = verdict(found, engine)
    assert said.startswith("verdict: ")
    assert words in said
    assert ok is ready


@pytest.mark.parametrize("name", ["vLLM", "VLLM", "vllm"])
def test_an_engine_is_understood_in_every_spelling(name):
    assert verdict(report(READY), name)[1]
    for spelling in ("trtllm", "TensorRT-LLM", "tensorrt_llm", "TRT-LLM"):
        assert engine_named(spelling) == "tensorrt-llm"
    with pytest.raises(ConfigError, match=r"unknown engine 'vlm' \(did you mean vllm"):
        verdict(report(READY), "vlm")


@pytest.mark.parametrize("place", ["localhost:1", "1"])
def test_top_takes_host_and_port(place: str):
    with pytest.raises(DataError, match=r"http://localhost:1/v1/adaptive_spec: no answer"):
        StatusSource(place).read()


def test_a_server_refuses_a_static_k_beyond_its_largest():
    capability = Capability(level=Level.FULL, max_draft_tokens=6)
    controller = Controller.from_config(Config(), capability)
    with pytest.raises(PolicyError, match="9 is more than the server's largest K, 6"):
        controller.switch(SwitchRequest(policy="static", options={"k": 9}))
    assert controller.policy.name == "goodput"
    controller.switch(SwitchRequest(policy="static", options={"k": 6}))
    assert controller.policy.name == "static"


def test_the_closing_sentence_of_replay_follows_the_figures():
    none = closing_sentence({"K = 1": (0.81, 1), "K = 3": (0.79, 64)}, (0.99, 16))
    assert none.startswith("No fixed K is within 5% of the best at every load: K = 1 loses 19% at")
    assert "goodput loses at most 1% (at 16)" in none
    one = closing_sentence({"K = 1": (0.96, 1), "K = 3": (0.79, 64)}, (0.9, 16))
    assert one.startswith("K = 1: within 5% of the best at every load")


def test_what_replay_prints_is_what_the_readme_claims():
    """The first command of a visitor and the first page that he reads."""
    ratio, clients = lost_to_none(simulate_all())
    page = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())
    claim = re.search(r"with (\d+) clients, goodput is (\d+) % slower than no speculation", page)
    assert claim, "README does not say what `adaptive-spec replay` shows"
    assert (int(claim[1]), int(claim[2])) == (clients, round(100 * (1.0 - ratio)))


def test_a_new_policy_passes_its_own_test_at_once(tmp_path: Path):
    files = make_package("my_rule", tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            str(files[0].parent),
        ],
        capture_output=True,
        text=True,
        cwd=files[0].parent,
        env={"PYTHONPATH": str(files[0].parent), "PATH": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: 3 levels, " in done.stdout
    assert "my_rule" not in available_policies()
    with pytest.raises(AdaptiveSpecError, match="exists already"):
        make_package("my_rule", tmp_path)
    for name in ("goodput", "turbospec"):
        with pytest.raises(AdaptiveSpecError, match=f"a policy '{name}' is installed"):
            make_package(name, tmp_path)
    with pytest.raises(AdaptiveSpecError, match="letters, digits"):
        make_package("my rule", tmp_path)


def test_the_example_is_what_new_policy_writes(tmp_path: Path):
    example = Path(__file__).resolve().parents[2] / "examples" / "my-rule"
    for file in make_package("my_rule", tmp_path):
        written = file.relative_to(tmp_path / "my-rule")
        assert (example / written).read_text() == file.read_text(), written
