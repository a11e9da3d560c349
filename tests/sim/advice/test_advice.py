"""Advice on traces of simulated servers whose costs are known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer import Typer
from typer.testing import CliRunner

from adaptive_spec.errors import DataError
from adaptive_spec.sim.advice.advice import Advice
from adaptive_spec.sim.advice.advice import advise as predict
from adaptive_spec.sim.advice.memory import memory_cost
from adaptive_spec.sim.commands.advise import advise
from tests.sim.recorded_steps import NAME, step_row, write_steps
from tests.sim.small_server import (
    PlainDrafter,
    PlainHardware,
    RandomK,
    closed_load,
    independent,
    server,
)

HARDWARE = PlainHardware(token=1e-4)

POOR_DRAFTER = Path(__file__).with_name("poor_drafter.jsonl.gz")
"""Random words, greedy, from vLLM 0.32 on a CPU with the noised draft model and random K, 16 and
then 4 clients, 20 s each, on a machine with other work."""
MEASURED_K_1 = {4: 0.947, 16: 0.793}
"""Throughput of K = 1 over none, by clients, in other runs of the same condition."""


def recorded(folder: Path, *, hazard: float, pass_seconds: float) -> Path:
    """A trace of random K at one and at four clients."""
    for clients in (1, 4):
        server(
            closed_load(clients),
            RandomK(clients),
            data=independent(hazard, 5000, depth=2),
            hardware=HARDWARE,
            drafter=PlainDrafter(pass_=pass_seconds),
            trace_directory=str(folder / str(clients)),
            max_draft_tokens=2,
        ).run(max_tokens=1500 * clients)
    return folder


def advised(folder: Path) -> Advice:
    traces = sorted(folder.iterdir())
    return predict(traces, resamplings=2, tokens=400)[0]


def test_predictions_meet_what_the_recorded_server_does_with_a_fixed_k(tmp_path):
    found = advised(recorded(tmp_path, hazard=0.8, pass_seconds=0.7e-3))
    two = next(each for each in found.predictions if each.name == "K = 2")
    for place, clients in ((0, 1), (-1, 4)):
        assert found.loads[place].clients == clients
        real = server(
            closed_load(clients),
            "static",
            policy_options={"k": 2},
            data=independent(0.8, 5000, depth=2),
            hardware=HARDWARE,
            max_draft_tokens=2,
        ).run(max_tokens=8000, warmup_steps=100)
        assert two.by_load[place].value == pytest.approx(real.throughput_tok_s, rel=0.05)
    assert found.verdict.startswith("speculate")
    assert found.leave_out_from is None
    assert found.recommended[0] == "goodput"


def test_where_drafting_costs_more_than_it_brings_the_advice_is_no_speculation(tmp_path):
    found = advised(recorded(tmp_path, hazard=0.2, pass_seconds=4e-3))
    assert found.verdict.startswith("leave speculation off")
    assert found.recommended == ["none"]
    assert not any("(K = 2)" in said for said in found.certainty), "it loses, however uncertain"
    assert found.leave_out_from == 1


@pytest.mark.long
def test_on_a_trace_of_vllm_where_every_fixed_k_lost_the_advice_is_no_speculation():
    found = predict([POOR_DRAFTER], drafter="draft_model", resamplings=2, tokens=200)[0]
    assert found.verdict.startswith("leave speculation off")
    assert found.recommended == ["none"]
    assert found.leave_out_from == found.loads[0].clients
    one = next(each for each in found.predictions if each.name == "K = 1")
    gains = {
        load.clients: with_k.value / without.value
        for load, with_k, without in zip(
            found.loads, one.by_load, found.predictions[0].by_load, strict=True
        )
    }
    for clients, measured in MEASURED_K_1.items():
        assert gains[clients] == pytest.approx(measured, rel=0.05)


def test_a_trace_with_one_k_shows_what_ran_and_says_what_is_missing(tmp_path):
    rows = [step_row(step, ["a", "b"], [2, 2], [1, 2]) for step in range(80)]
    found = predict([write_steps(tmp_path / NAME, *rows)])[0]
    assert found.predictions == []
    assert found.overall.acceptance == pytest.approx(0.75)
    assert found.kinds[0].by_position == [1.0, 0.5]
    assert "K must vary" in found.certainty[1]


def test_acceptance_is_shown_by_task_label(tmp_path):
    rows = [step_row(step, ["a", "b"], [1, 1], [1, 0], task=[0, 1]) for step in range(80)]
    found = predict([write_steps(tmp_path / NAME, *rows)])[0]
    rates = {kind.name: kind.by_position for kind in found.kinds}
    assert rates == {"all": [0.5], "task 0": [1.0], "task 1": [0.0]}


def test_the_command_prints_one_screen_and_writes_a_page_without_external_assets(tmp_path):
    rows = [step_row(step, ["a"], [2], [1]) for step in range(80)]
    trace, page = write_steps(tmp_path / NAME, *rows), tmp_path / "advice.html"
    app = Typer()
    app.command()(advise)
    done = CliRunner().invoke(app, [str(trace), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "acceptance by position" in done.output
    text = page.read_text(encoding="utf-8")
    assert "acceptance by position" in text
    assert "white-space:pre-wrap" in text
    assert "src=" not in text
    assert "@import" not in text


def test_a_trace_without_decode_steps_is_refused_in_one_line(tmp_path):
    with pytest.raises(DataError, match="nowhere: no such directory"):
        predict([tmp_path / "nowhere"])


def test_a_drafter_costs_its_weights_and_its_kv(tmp_path):
    shape = {"num_attention_heads": 4, "head_dim": 8, "dtype": "float16"}
    for name, layers in (("target", 4), ("draft", 1)):
        (tmp_path / name).mkdir()
        config = msgspec.json.encode(shape | {"num_hidden_layers": layers})
        (tmp_path / name / "config.json").write_bytes(config)
    (tmp_path / "draft" / "model.safetensors").write_bytes(bytes(512 * 100))
    said = memory_cost(tmp_path / "target", tmp_path / "draft", 400, 50.0)
    # 51,200 bytes of weights over 512 a token, and a quarter of 400 tokens.
    assert "200 more KV tokens would fit: about 4 requests of 50 tokens" in said[1]
