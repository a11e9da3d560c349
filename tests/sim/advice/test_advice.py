"""Advice on traces of simulated servers whose costs are known."""

import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console
from typer import Typer
from typer.testing import CliRunner, Result

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.advice import adaptive, running, setups
from adaptive_spec.sim.advice.advice import predict
from adaptive_spec.sim.advice.memory import memory_cost
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.summary import observe
from adaptive_spec.sim.advice.values import Advice, Estimate, Fleet
from adaptive_spec.sim.advice.verdict import decide, measured_said
from adaptive_spec.sim.advice.worlds import World, halves, recorded_world
from adaptive_spec.sim.commands.advice_page import advice_page
from adaptive_spec.sim.commands.advice_screen import by_clients, print_advice
from adaptive_spec.sim.commands.advise import advise
from adaptive_spec.sim.drafters.registry import drafter as find_drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.hardware.from_trace import read_timed_steps
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.load.request import Request, requests_of
from adaptive_spec.step import Level
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


def advised(folder: Path, **options: Any) -> Advice:
    traces = sorted(folder.iterdir())
    return predict(traces, resamplings=2, tokens=200, **options).conclude()


WARM_UP_STEPS = adaptive.WARM_UP_STEPS


@pytest.fixture(scope="module", autouse=True)
def short_warm_up() -> Iterator[None]:
    """Simulations of which verdicts hold after a third of the warm-up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "WARM_UP_STEPS", WARM_UP_STEPS // 3)
        yield


@pytest.fixture(scope="module")
def paying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of a server on which drafting pays."""
    return recorded(tmp_path_factory.mktemp("pays"), hazard=0.8, pass_seconds=0.7e-3)


@pytest.fixture(scope="module")
def found(paying: Path) -> Advice:
    """Advice for that server."""
    return advised(paying)


def test_predictions_meet_what_the_recorded_server_does_with_a_fixed_k(found):
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
        ).run(max_tokens=4000, warmup_steps=100)
        assert two.by_load[place] == pytest.approx(real.throughput_tok_s, rel=0.05)
    assert found.verdict.worth == "yes"
    assert found.leave_out_from is None
    assert "goodput" in found.verdict.recommended


def simulated(world: World, set_up: SetUp, clients: int) -> tuple[float, float]:
    """Tokens per second and median TPOT of a closed loop in the simulator."""
    traffic = world.traffic
    none = set_up.name == setups.NO_SPECULATION
    engine = Engine(
        ClosedLoad(requests_of(traffic.data, seed=0), clients),
        traffic.data,
        find_drafter("none") if none else traffic.drafter,
        world.hardware,
        build_policy(set_up.policy, set_up.options, seed=0, baselines=True),
        traffic.options,
    )
    result = engine.run(max_tokens=10_000, warmup_steps=100)
    return result.throughput_tok_s, float(np.median(engine.measurements.tpot_seconds))


def test_a_fixed_k_by_sums_is_what_the_simulator_measures(paying):
    traces = sorted(paying.iterdir())
    steps = read_timed_steps(traces)
    world = recorded_world(observe(traces), steps, drafter="eagle", seed=0)
    for set_up in (setups.no_speculation(), setups.static(2), setups.warm_zero()):
        for clients in (1, 4, 16):
            summed = world.run(set_up, clients)
            speed, tpot = simulated(world, set_up, clients)
            assert summed.tokens_per_second == pytest.approx(speed, rel=0.01)
            assert np.median(summed.tpot_seconds) == pytest.approx(tpot, rel=0.05)


def test_what_is_simulated_once_holds_for_other_weights_and_step_costs(paying):
    """Of a fixed K the ratio of any stretch to another fixed K is known."""
    traces = sorted(paying.iterdir())
    steps = read_timed_steps(traces)
    whole = recorded_world(observe(traces), steps, drafter="eagle", seed=0, loads=[1, 4])
    traffic, two = whole.traffic, setups.static(2)
    found = adaptive.stretches(
        two,
        traffic.shaped(traffic.drafter),
        traffic.drafter,
        whole.hardware,
        traffic.options,
        traffic.loads,
        seed=0,
        tokens=3000,
        progress=lambda: None,
    )
    for world in halves(whole, steps, 1).values():
        for clients, stretch in found.items():
            same = traffic.fixed(two, 2, world.hardware)
            assert stretch.priced(same, world.weights)[0] == pytest.approx(1.0, abs=0.01)
            one = traffic.fixed(setups.static(1), 1, world.hardware)
            speeds = [each.run(clients, world.weights)[0] for each in (same, one)]
            ratio = stretch.priced(one, world.weights)[0]
            assert ratio == pytest.approx(speeds[0] / speeds[1], rel=0.04)


def test_where_drafting_does_not_pay_the_advice_is_no_speculation(tmp_path):
    found = advised(recorded(tmp_path, hazard=0.2, pass_seconds=4e-3))
    assert found.verdict.worth == "no"
    assert found.verdict.recommended == ["none"]
    assert found.leave_out_from == 1


def test_what_a_drafter_costs_while_off_is_its_pass_and_what_it_holds(found: Advice) -> None:
    [passes, held, first_token, prompts] = found.kept_at_zero
    at_1, at_4 = (1.0 - step / (step + 0.7e-3) for step in (7.1e-3, 7.4e-3))
    said = re.match(r"([\d.]+) to ([\d.]+) % of throughput for the pass", passes)
    assert float(said[1]) == pytest.approx(100 * at_4, abs=0.5)
    assert float(said[2]) == pytest.approx(100 * at_1, abs=0.5)
    assert held.startswith("2 tokens of KV behind each request")
    assert "first token" in first_token
    assert "of the prompts' tokens" in prompts
    assert "Off keeps" in dict(found.verdict.answers)


@pytest.mark.long
def test_a_pipeline_over_pcie_runs_without_drafts(tmp_path, monkeypatch):
    """vllm#44697: each verified token crosses PCIe between the stages, and drafting does, too.

    In a pipeline every step drafts Kmax, so a trace does not show what that costs. But verifying
    the drafts does not pay for itself, and drafting can only cost more.
    """
    monkeypatch.setattr(adaptive, "WARM_UP_STEPS", WARM_UP_STEPS)
    pipeline = {
        "hardware": PlainHardware(fixed=30e-3, token=9e-3),
        "drafter": PlainDrafter(pass_=5e-3),
        "data": independent(0.3, 5000, depth=2),
        "max_draft_tokens": 2,
        "level": Level.VERIFY,
    }

    def record(clients: int) -> Path:
        folder = tmp_path / str(clients)
        server(closed_load(clients), RandomK(clients), trace_directory=str(folder), **pipeline).run(
            max_tokens=1500 * clients
        )
        return folder

    traces = [record(4), record(8)]
    found = predict(traces, resamplings=2, tokens=200).conclude()
    assert found.verdict.worth == "no"
    assert found.verdict.recommended == ["none"]
    assert "at most" in found.verdict.sentence
    assert any("2 deep" in answer for _, answer in found.verdict.answers)
    # Alone, a request gains by drafts that are there anyway: whether by drafting is open.
    alone = predict([record(1), traces[0]], resamplings=2, tokens=200).conclude()
    assert alone.verdict.worth == "cannot tell"
    assert any("2 deep" in answer for _, answer in alone.verdict.answers)
    engine = server(closed_load(4), "goodput", **pipeline)
    engine.run(max_tokens=4000)
    settled = engine.run(max_tokens=4000)
    assert settled.mean_k < 0.1
    assert "off_cold" not in settled.mode_fraction  # K = 0 while ON and OFF_WARM cost the same
    k0, k2 = (
        server(closed_load(4), "static", policy_options={"k": k}, **pipeline)
        .run(max_tokens=4000)
        .throughput_tok_s
        for k in (0, 2)
    )
    assert settled.throughput_tok_s > 0.98 * k0
    assert k0 > 1.2 * k2


def test_a_trace_of_vllm_on_a_busy_machine_gives_no_advice():
    found = predict([POOR_DRAFTER], drafter="draft_model", resamplings=2, tokens=200).conclude()
    assert found.fit.median_error > 0.15
    assert found.verdict.worth == "cannot tell"
    assert found.verdict.recommended == []


def test_a_trace_with_one_k_shows_what_ran_and_says_what_is_missing(tmp_path):
    rows = [step_row(step, ["a", "b"], [2, 2], [1, 2]) for step in range(80)]
    found = predict([write_steps(tmp_path / NAME, *rows)]).conclude()
    assert found.predictions == []
    assert found.overall.acceptance == pytest.approx(0.75)
    assert found.kinds[0].by_position == [1.0, 0.5]
    assert found.kinds[0].accepted == [1.0, 1.5]
    assert found.verdict.worth == "cannot tell"
    assert "shadow_share" in dict(found.verdict.answers)["Record"]


def test_requests_of_one_token_give_no_advice(tmp_path):
    rows = []
    for step in range(80):
        ids = [f"r{step}", f"s{step}"][: 1 + step % 2]
        k, prompts = [step // 2 % 3] * len(ids), 10 * (step % 5 == 0)
        rows.append(step_row(step, ids, k, [0] * len(ids), prefill_tokens=prompts))
    found = predict([write_steps(tmp_path / NAME, *rows)]).conclude()
    assert found.verdict.worth == "cannot tell"
    assert "one output token" in dict(found.verdict.answers)["Missing"]


def test_a_shadow_trace_with_a_share_of_other_k_can_be_advised(tmp_path):
    def lengths():
        for number in itertools.count():
            tokens = 60 + 37 * number % 80
            yield Request(id=f"r{number}", arrival=0.0, prompt_tokens=20, output_tokens=tokens)

    for clients in (1, 4):
        engine = server(
            ClosedLoad(lengths(), clients),
            data=independent(0.8, 5000, depth=2),
            hardware=HARDWARE,
            drafter=PlainDrafter(pass_=0.7e-3),
            trace_directory=str(tmp_path / str(clients)),
            max_draft_tokens=2,
        )
        shadow = engine.controller
        shadow.config = msgspec.structs.replace(shadow.config, mode="shadow", shadow_share=0.3)
        shadow.mode = "shadow"
        engine.run(max_tokens=3000 * clients)
    found = advised(tmp_path)
    assert found.modes["shadow"] > 0.5
    assert found.verdict.worth == "yes"


def test_acceptance_is_shown_by_task_label(tmp_path):
    rows = [step_row(step, ["a", "b"], [1, 1], [1, 0], task=[0, 1]) for step in range(80)]
    rows[0]["task_names"] = {"0": "code"}
    found = predict([write_steps(tmp_path / NAME, *rows)]).conclude()
    rates = {kind.name: kind.by_position for kind in found.kinds}
    assert rates == {"all": [0.5], "code": [1.0], "task 1": [0.0]}


def test_step_times_that_do_not_fit_give_no_advice(tmp_path):
    folder = recorded(tmp_path, hazard=0.8, pass_seconds=0.7e-3)
    random = np.random.default_rng(0)
    for path in sorted(folder.glob("*/steps-*.jsonl")):
        rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        for row in rows:
            row["seconds"] *= float(np.exp(random.normal(0.0, 1.0)))
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    found = advised(folder)
    assert found.verdict.worth == "cannot tell"
    assert "not predictable" in found.verdict.sentence
    assert found.verdict.recommended == []
    assert found.predictions == []


def test_lines_of_the_best_set_up_come_first_and_those_of_losers_never(found):
    names = {"goodput", found.native}
    assert set(found.verdict.recommended) == names
    over = found.over_native
    assert over.low <= over.value <= over.high
    if over.low > 1.0 or over.high < 1.0:
        assert found.verdict.recommended[0] == ("goodput" if over.low > 1.0 else found.native)


def test_fewer_accepted_drafts_and_more_load_lower_every_gain(found):
    now = {each.name: each.gain for each in found.predictions}
    load, fewer = found.what_if[:2]
    assert load.name == "load x 2"
    assert load.native < now[found.native]
    assert fewer.native < now[found.native]
    assert fewer.ours < now["goodput"]


@pytest.mark.parametrize(("half", "more"), [(0.04, "3.0 h more"), (0.03, "75 min more")])
def test_twice_the_precision_takes_four_times_the_traffic(found, half, more):
    """An hour was recorded; ± 2 % are wanted."""
    over = msgspec.structs.replace(found.over_native, value=1.0, low=1.0 - half, high=1.0 + half)
    seen = msgspec.structs.replace(found, over_native=over, seconds=3600.0)
    assert more in dict(decide(seen, Fleet(), "", 2).answers)["Sure?"]


def test_a_fleet_turns_the_gain_into_gpus_and_money(found):
    verdict = decide(found, Fleet(gpus=10, gpu_hour_price=2.0), "", 2)
    gain = next(each.gain for each in found.predictions if each.name == verdict.recommended[0])
    saved = 10 * (1 - 1 / gain)
    assert f"{saved:.1f} of 10 GPUs fewer" in dict(verdict.answers)["GPU time"]
    assert f"{saved * 2.0 * 730:,.0f} a month" in dict(verdict.answers)["GPU time"]


@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_what_blocks_have_measured_comes_first_and_holds_against_a_prediction(found, gain):
    predicted = found.over_runs["goodput"].value
    around = Estimate(gain * predicted, 0.99 * gain * predicted, 1.01 * gain * predicted)
    advice = msgspec.structs.replace(found, measured=around, measured_blocks=40)
    said = measured_said(advice)
    assert "in 40 audit blocks of this trace; predicted " in said
    assert ("they disagree, and what is measured holds" in said) == (gain > 1.0)
    console = Console(width=200, file=io.StringIO())
    print_advice(advice, console)
    printed = console.file.getvalue()
    assert printed.index(said[:20]) < printed.index("Worth it?")
    assert said in unescape(advice_page(advice))
    assert not measured_said(found)


def test_the_answer_names_what_changes_for_a_server_that_runs_its_kmax(found):
    """K = 2 at both loads is what the operator has; gains over none say nothing of that."""
    assert found.runs == "K = 2"
    by_name = {each.name: each for each in found.predictions}
    fixed, ours = by_name["K = 2"], by_name["goodput"]
    over = found.over_runs["goodput"]
    assert over.value == pytest.approx(ours.gain / fixed.gain)
    assert over.low <= over.value <= over.high
    verdict = decide(found, Fleet(gpus=10), "", 2)
    assert verdict.runs.startswith("K = 2 at every load, inferred from the trace: plugin ")
    assert f"plugin {100 * (over.value - 1):+.1f} %" in verdict.runs
    assert f"{fixed.tpot_ms[1]:.3g} -> {ours.tpot_ms[1]:.3g} ms" in verdict.runs
    if verdict.recommended[0] in found.over_runs:
        assert "against fixed K = 2" in dict(verdict.answers)["GPU time"]


@pytest.fixture(scope="module")
def table_trace(paying: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Traces of a server whose own table has K = 2 for up to 2 requests and K = 1 for more."""
    folder = shutil.copytree(paying, tmp_path_factory.mktemp("table") / "trace")
    for path in folder.glob("*/steps-*.jsonl"):
        rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        for row in rows:
            row["engine_k"] = 2 if row["batch_size"] <= 2 else 1
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return sorted(folder.iterdir())


def test_a_table_is_read_from_the_trace_and_compared(table_trace: list[Path]) -> None:
    """At 1 request it is K = 2, at 4 it is K = 1; a statement of it says the same."""
    predicted = predict(table_trace, resamplings=2, tokens=200)
    found = predicted.conclude()
    by_name = {each.name: each for each in found.predictions}
    assert found.runs == "your table"
    table = by_name[found.runs].by_load
    assert table[0] == by_name["K = 2"].by_load[0]
    assert table[-1] == by_name["K = 1"].by_load[-1]
    over = found.over_runs["goodput"]
    assert over.value == pytest.approx(by_name["goodput"].gain / by_name[found.runs].gain)
    assert set(found.over_runs) == {"goodput", found.native, "none"}
    assert "K = 2 up to 2, K = 1 at more requests), inferred from the trace: " in found.verdict.runs
    assert "what you run, your table" in advice_page(found)
    same = predict(table_trace, resamplings=2, tokens=200, runs="[[1, 2, 2], [3, 9, 1]]").conclude()
    assert same.over_runs == found.over_runs
    assert same.runs_share == found.runs_share


def test_a_k_that_follows_more_than_the_batch_size_is_not_taken_for_a_table() -> None:
    moving = {1: Counter({1: 60, 3: 40}), 4: Counter({1: 50, 2: 50})}
    assert running.recorded(moving, 3, "sglang") is None
    by_size = {
        1: Counter({3: 99, 1: 1}),
        2: Counter({1: 1}),
        4: Counter({3: 100}),
        9: Counter({2: 99}),
    }
    found = running.recorded(by_size, 3, "vllm")
    assert found.options == {"table": [[1, 4, 3], [5, 9, 2]]}
    assert running.recorded(by_size, 3, "sglang") is None


@pytest.mark.parametrize(
    ("text", "at_1", "at_40"),
    [
        ("2", 2, 2),
        ('{"method": "eagle", "num_speculative_tokens": 2}', 2, 2),
        ("[[3, 64, 1], [1, 2, 2]]", 2, 1),
        ('{"num_speculative_tokens_per_batch_size": [[1, 8, 2], [9, 64, 0]]}', 2, 0),
        ('{"4": 2, "50": 1}', 2, 1),
        ('{"ema_alpha": 0.5, "1": {"candidate_steps": [1, 2]}}', None, None),
    ],
)
def test_what_runs_can_be_stated_as_each_engine_has_it(text, at_1, at_40):
    made = running.stated(text, 2, "vllm")
    assert (made.fixed_k(1), made.fixed_k(40)) == (at_1, at_40)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[2, 8, 1]]", "must begin at batch size 1"),
        ("[[1, 8]]", "`array` of length 3"),
        ("[]", "is empty"),
        ("{}", "expected K, a file, or JSON"),
        ('{"1": {"candidate_steps": []}}', "candidate_steps"),
        ('{"1": {"steps": [1]}}', "unknown field `steps`"),
        ("9", "K is 1 to 2, the largest K of the trace"),
        ("nowhere.json", "No such file"),
    ],
)
def test_what_was_not_understood_is_named_in_one_line(text, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as raised:
        running.stated(running.read_stated(text), 2, "vllm")
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--runs ")


def test_loads_that_were_not_recorded_are_called_extrapolated(found):
    recorded = found.loads[-1].clients
    for left_out, extrapolated in ((None, True), (2 * recorded, True), (recorded, False)):
        said = by_clients(msgspec.structs.replace(found, leave_out_from=left_out))
        assert (f"(beyond {recorded} requests extrapolated)" in said) is extrapolated


def test_two_pools_are_proposed_where_each_has_a_share_of_the_time(found):
    def answers(left_out: int | None) -> dict[str, str]:
        changed = msgspec.structs.replace(found, leave_out_from=left_out)
        return dict(decide(changed, Fleet(), "", 2).answers)

    said = answers(2)["Two pools?"]
    assert "from 2 requests at a time on" in said
    assert f"{1.0 - found.loads[0].share:.0%} of the time" in said
    for left_out in (None, 1, 8):
        assert "Two pools?" not in answers(left_out)


SPEEDS = {1: {0: 100.0, 1: 120.0, 2: 140.0}, 4: {0: 400.0, 1: 390.0, 2: 380.0}}


@pytest.mark.parametrize(
    ("engine", "ours", "own"),
    [
        ("vllm", "--additional-config", '"num_speculative_tokens_per_batch_size": [[1, 2, 2], '),
        ("sglang", "SGLANG_PLUGINS", "--speculative-adaptive-config"),
        ("tensorrt-llm", "TLLM_ADAPTIVE_SPEC", "draft_len_schedule: {2: 2}"),
    ],
)
def test_the_engine_decides_whose_lines_are_printed(engine, ours, own):
    assert ours in "".join(setups.ours(2, engine).lines)
    assert all(own in "".join(each.lines) for each in setups.native(engine, SPEEDS, SPEEDS))


def test_the_page_of_a_prediction_has_a_bar_for_each_set_up(found):
    page = advice_page(found)
    assert page.count('class="bar') == len(found.predictions)
    assert "http" not in page.replace("http-equiv", "")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page


def test_the_command_prints_one_screen_and_writes_a_whole_page(tmp_path):
    rows = [step_row(step, ["a"], [2], [1]) for step in range(80)]
    trace, page = write_steps(tmp_path / NAME, *rows), tmp_path / "advice.html"
    app = Typer()
    app.command()(advise)
    done = CliRunner().invoke(app, [str(trace), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "acceptance by position" in done.output
    assert "aiconfigurator --nextn 2 --nextn-accepted 1.00" in done.output
    text = page.read_text(encoding="utf-8")
    assert "Acceptance by draft position" in text
    assert "src=" not in text
    assert "@import" not in text


def test_a_prediction_is_kept_and_another_fleet_does_not_simulate_again(
    paying, tmp_path, monkeypatch
):
    traces = sorted(shutil.copytree(paying, tmp_path / "trace").iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    app = Typer()
    app.command()(advise)

    def called(*options: str) -> Result:
        short = ["--tokens", "200", "--resamplings", "2"]
        done = CliRunner().invoke(app, [*map(str, traces), *short, *options])
        assert done.exit_code == 0, done.output
        return done

    first = called()
    (kept,) = (tmp_path / "cache").rglob("*.json")
    assert f"kept in {kept}" in first.stderr
    assert "first look, 2 resamplings: Yes" in first.stderr
    with monkeypatch.context() as patch:
        patch.setattr(adaptive, "stretches", None)
        again = called()
        assert f"made before, from {kept}" in again.stderr
        assert again.stdout == first.stdout
        assert "of 8 GPUs fewer" in " ".join(called("--gpus", "8").stdout.split())
    kept.write_bytes(kept.read_bytes()[:-20])  # damaged: made anew
    assert called().stdout == first.stdout
    with next(traces[0].glob("steps-*.jsonl")).open("a") as file:
        file.write("\n")
    called()  # another trace
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 2


@pytest.mark.parametrize(
    ("drafter", "flags"),
    [
        ("eagle", "--speculative-adaptive --speculative-adaptive-config"),
        ("draft_model", "--speculative-num-steps"),
        ("ngram", "--speculative-ngram-max-bfs-breadth 1"),
    ],
)
def test_sglangs_lines_are_those_of_its_drafter(drafter, flags):
    for k in (1, 3):
        [line] = setups.static(k, "sglang", drafter).lines
        assert f"--speculative-num-draft-tokens {k + 1}" in line
        assert (f"--speculative-num-steps {k} --speculative-eagle-topk 1" in line) != (
            drafter == "ngram"
        )
    assert flags in "".join(setups.ours(3, "sglang", drafter).lines)
    assert setups.varies_k("sglang", drafter) == (drafter == "eagle")


def test_ctrl_c_says_what_it_has(paying, tmp_path):
    traces = sorted(paying.iterdir())
    command = [sys.executable, "-m", "adaptive_spec", "advise", *map(str, traces)]
    process = subprocess.Popen(
        [*command, "--tokens", "3000"],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("first look, 2 resamplings: Yes"):
            process.send_signal(signal.SIGINT)
            break
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Worth it?" in said
    assert "2 resamplings" in said
    assert "stopped: " in errors
    assert not list((tmp_path / "cache").rglob("*.json"))


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
