import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from adaptive_spec.errors import DataError
from adaptive_spec.sim.commands.profile import profile
from adaptive_spec.sim.hardware import from_trace
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.from_trace import profile_from_trace, read_timed_steps
from adaptive_spec.sim.hardware.nonnegative import nonnegative_fit
from adaptive_spec.sim.hardware.registry import hardware

BATCHES = (1, 2, 4, 8, 16)


def verify_seconds(batch: int, tokens: int, context: int, prompt: int) -> float:
    """The machine that is to be found again."""
    whole = tokens + prompt
    curve = 5e-3 + 4e-5 * whole + 2e-5 * max(whole - 64, 0)
    any_draft = 8e-4 + 1e-5 * batch if tokens > batch else 0.0
    return curve + 3e-5 * batch + 4e-8 * context + any_draft


def draft_seconds(batch: int, depth: int) -> float:
    return max(depth, 1) * (7e-4 + 4e-6 * batch)


def write_trace(
    folder: Path,
    *,
    steps: int = 1500,
    batches: tuple[int, ...] = BATCHES,
    draws: Callable[[np.random.Generator], tuple[int, int]] | None = None,
    prompts: float = 0.1,
    noise: float = 0.03,
    slow: float = 0.02,
) -> Path:
    """Random steps of that machine; `draws` gives K and depth."""
    random = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "steps-1-000000.jsonl").open("w") as file:
        for number in range(steps):
            batch = int(random.choice(batches))
            k, depth = draws(random) if draws else (random.integers(0, 7), random.integers(0, 7))
            tokens = batch * (1 + int(k))
            context = int(random.integers(50, 2000, batch).sum())
            prompt = int(random.integers(1, 400)) if random.random() < prompts else 0
            seconds = verify_seconds(batch, tokens, context, prompt) + draft_seconds(batch, depth)
            seconds *= float(np.exp(noise * random.normal()))
            if random.random() < slow:
                seconds *= 6.0
            record = {
                "schema": 1,
                "step": number,
                "now": number * 0.01,
                "mode": "on",
                "depth": int(depth),
                "seconds": seconds if number % 50 else None,
                "batch_size": batch,
                "batch_tokens": tokens,
                "context_tokens": context,
                "prefill_tokens": prompt,
                "waiting": 0,
                "kv_free_tokens": 40_000 - context,
                **dict.fromkeys(("ids", "k", "accepted", "emitted"), ()),
            }
            file.write(json.dumps(record) + "\n")
    return folder


def errors(fitted: Hardware, batches=BATCHES, prompts=(0, 200)) -> np.ndarray:
    """Of every kind of step, relative to the truth."""
    found = []
    for batch in batches:
        for k in (0, 1, 3, 6):
            for prompt in prompts:
                tokens, context = batch * (1 + k), batch * 900
                draft = fitted.measured_draft("eagle")
                ours = fitted.verify_seconds(batch, tokens, context, prompt, 0)
                if k:
                    ours += fitted.any_draft + fitted.any_draft_per_request * batch
                passes = draft.pass_ + draft.pass_per_request * batch
                ours += max(k, 1) * (passes + draft.pass_per_context_token * context)
                truth = verify_seconds(batch, tokens, context, prompt) + draft_seconds(batch, k)
                found.append(ours / truth - 1.0)
    return np.array(found)


def test_planted_step_times_are_found_through_noise_and_slow_steps(tmp_path):
    fitted, fit = profile_from_trace([write_trace(tmp_path / "run")], name="run")
    assert np.abs(errors(Hardware(fitted))).max() < 0.04
    assert fitted.drafts["*"].pass_ == pytest.approx(7e-4, rel=0.05)
    assert fitted.per_context_token == pytest.approx(4e-8, rel=0.3)
    assert fit.off_pass is True
    assert (fit.steps, fit.skipped) == (1470, 30)
    assert 0.01 < fit.median_error < 0.04


def test_without_noise_only_the_straightening_of_the_curve_is_left(tmp_path):
    trace = write_trace(tmp_path / "run", noise=0.0, slow=0.0)
    fitted, fit = profile_from_trace([trace], name="run")
    assert np.abs(errors(Hardware(fitted))).max() < 5e-3
    assert fit.median_error < 1e-3
    assert fit.total == pytest.approx(1.0, abs=1e-3)


def test_several_servers_with_one_k_each_make_one_profile(tmp_path):
    folders = [
        write_trace(tmp_path / f"k{k}", steps=300, draws=lambda _random, k=k: (k, k))
        for k in (0, 1, 3, 6)
    ]
    fitted, _fit = profile_from_trace(folders, name="all")
    assert np.abs(errors(Hardware(fitted))).max() < 0.06


def test_folders_below_the_one_named_are_read_too(tmp_path):
    write_trace(tmp_path / "runs" / "a", steps=200)
    write_trace(tmp_path / "runs" / "b", steps=200)
    _fitted, fit = profile_from_trace([tmp_path / "runs"], name="all")
    assert fit.steps + fit.skipped == 400


def test_the_pool_is_as_large_as_the_trace_saw_it(tmp_path):
    from adaptive_spec.sim.drafters.chains import NoDrafter
    from adaptive_spec.sim.engine.kv_pool import pool_tokens

    fitted, _fit = profile_from_trace([write_trace(tmp_path / "run")], name="run")
    assert pool_tokens(Hardware(fitted), NoDrafter()) in (40_000, 40_001)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": lambda random: (random.integers(0, 4), 3)}, "every step drafted 3 deep"),
        ({"draws": lambda random: (3, random.integers(0, 7))}, "every step verified K = 3"),
        ({"batches": (4,)}, "every step decoded 4 requests"),
        ({"steps": 20}, "19 measured steps, 60 are needed"),
    ],
)
def test_a_trace_that_cannot_tell_things_apart_is_refused_and_says_which(
    tmp_path, options, message
):
    trace = write_trace(tmp_path / "run", **options)
    with pytest.raises(DataError, match=message):
        profile_from_trace([trace], name="run")


def test_an_empty_or_missing_folder_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match="a folder without steps-"):
        profile_from_trace([tmp_path], name="run")
    with pytest.raises(DataError, match="nowhere: no such directory"):
        profile_from_trace([tmp_path / "nowhere"], name="run")


def test_a_damaged_trace_names_file_and_line(tmp_path):
    trace = write_trace(tmp_path / "run", steps=100)
    path = trace / "steps-1-000000.jsonl"
    lines = path.read_text().splitlines()
    lines[9] = lines[9][:40]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"steps-1-000000\.jsonl:10"):
        profile_from_trace([trace], name="run")


def test_a_step_without_a_column_names_it(tmp_path):
    path = tmp_path / "steps-1-000000.jsonl"
    path.write_text('{"schema": 1, "step": 5, "seconds": 0.1, "batch_size": 1}\n')
    with pytest.raises(DataError, match=r"step 5: .*`now`"):
        profile_from_trace([tmp_path], name="run")


def run(*arguments: str):
    app = typer.Typer()
    app.command()(profile)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_writes_a_profile_that_replay_can_use(tmp_path):
    trace, path = write_trace(tmp_path / "my-server"), tmp_path / "mine.json"
    result = run(str(trace), "--output", str(path))
    assert result.exit_code == 0, result.output
    assert "my-server" in result.output
    assert "error of a step: median" in result.output
    assert hardware(str(path)).name == "my-server"


def test_a_profile_that_does_not_fit_is_not_recommended(tmp_path):
    trace, path = write_trace(tmp_path / "noisy", noise=0.8), tmp_path / "mine.json"
    result = run(str(trace), "--output", str(path))
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "Not usable: step times are not predictable (at most 15% is usable)" in said
    assert "Wrote" not in said
    assert not path.exists()
    assert json.loads(run(str(trace), "--output", str(path), "--json").output)["output"] is None
    result = run(str(trace), "--output", str(path), "--force")
    assert result.exit_code == 0
    assert "Not usable" in result.output
    assert hardware(str(path)).name == "noisy"


def test_the_command_prints_json_for_programs(tmp_path):
    trace, path = write_trace(tmp_path / "run"), tmp_path / "mine.json"
    result = run(str(trace), "--output", str(path), "--name", "gpu", "--drafter", "mtp", "--json")
    printed = json.loads(result.output)
    assert printed["output"] == str(path)
    assert printed["profile"]["name"] == "gpu"
    assert list(printed["profile"]["drafts"]) == ["mtp"]
    assert printed["fit"]["steps"] == 1470
    assert printed["profile"] == json.loads(path.read_text())


_FIT = """
import numpy as np
from adaptive_spec.sim.hardware.nonnegative import robust_nonnegative_fit
features = np.random.default_rng(0).random((4000, 20))
print(robust_nonnegative_fit(features, features.sum(axis=1) ** 0.9).tolist())
"""


def test_a_fit_has_the_same_digits_on_any_number_of_cores():
    found = {
        subprocess.check_output(
            [sys.executable, "-c", _FIT], env=os.environ | {"OMP_NUM_THREADS": cores}, text=True
        )
        for cores in ("1", "2")
    }
    assert len(found) == 1


def test_nonnegative_fit_never_goes_below_zero_and_is_optimal():
    random = np.random.default_rng(3)
    for _ in range(30):
        features = random.normal(size=(40, 6)) + 0.5
        target = features @ np.maximum(random.normal(size=6), 0.0) + 0.3 * random.normal(size=40)
        solution = nonnegative_fit(features, target)
        gradient = features.T @ (features @ solution - target)
        assert (solution >= 0).all()
        assert (gradient > -1e-5).all()
        assert np.abs(gradient[solution > 0]).max(initial=0.0) < 1e-5


def test_of_a_long_trace_steps_spread_over_it_are_kept(tmp_path, monkeypatch):
    write_trace(tmp_path, steps=1000)
    whole = read_timed_steps([tmp_path])
    monkeypatch.setattr(from_trace, "_MOST_STEPS", 300)
    kept = read_timed_steps([tmp_path])
    assert kept.seconds.tolist() == whole.seconds[::4].tolist()
    profile, fit = from_trace.fit_profile(kept, name="kept", source="")
    assert fit.steps == len(kept.seconds) == 245
    assert fit.median_error < 0.05
    assert profile.name == "kept"


def test_a_decode_pool_without_prompts_has_a_profile_and_a_note(tmp_path):
    fitted, fit = profile_from_trace([write_trace(tmp_path / "run", prompts=0.0)], name="run")
    assert fit.median_error < 0.05
    assert "decoding alone" in fit.note
    hardware = Hardware(fitted)
    assert hardware.verify_seconds(4, 8, 1000, 500, 0) == hardware.verify_seconds(4, 8, 1000, 0, 0)


def test_prompts_in_batches_of_their_own_have_their_time(tmp_path):
    """As SGLang runs them: the time of a batch is that of as many tokens, and nothing else."""
    trace = write_trace(tmp_path / "run", prompts=0.0, noise=0.0, slow=0.0)
    path = trace / "steps-1-000000.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    random = np.random.default_rng(3)
    for row in rows[::10]:
        tokens = int(random.integers(20, 400))
        row["prompt_batches"] = [[1, tokens, 2e-3 + 4e-5 * tokens]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fitted, fit = profile_from_trace([trace], name="run")
    assert "batches of their own" in fit.note
    assert fit.median_error < 0.05
    seconds = Hardware(fitted).verify_seconds(0, 0, 0, 300, 0)
    assert seconds == pytest.approx(2e-3 + 4e-5 * 300, rel=0.15)
