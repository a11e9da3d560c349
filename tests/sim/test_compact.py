"""Traces of a fleet: compaction loses nothing that advice needs, and replicas add up."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import read_trace
from adaptive_spec.sim.advice import adaptive
from adaptive_spec.sim.advice.advice import predict
from adaptive_spec.sim.advice.fleet import find_summaries, read_pools
from adaptive_spec.sim.advice.summary import Summarizer, load, save, summarize, together
from adaptive_spec.sim.commands.advise import advise
from adaptive_spec.sim.commands.trace import trace
from adaptive_spec.sim.step_trace import find_trace
from tests.sim.small_server import (
    PlainDrafter,
    PlainHardware,
    RandomK,
    closed_load,
    independent,
    server,
)

GOOD, POOR, SLOW = (0.8, 1.0), (0.4, 1.0), (0.8, 1.4)
"""Hazard, and factor of all step times."""


def serve(folder: Path, hazard: float, slow: float, seed: int) -> None:
    for clients in (1, 4):
        server(
            closed_load(clients),
            RandomK(clients + seed),
            data=independent(hazard, 5000, depth=2),
            hardware=PlainHardware(fixed=3e-3 * slow, token=1e-4 * slow),
            drafter=PlainDrafter(pass_=0.7e-3 * slow),
            trace_directory=str(folder / str(clients)),
            max_draft_tokens=2,
        ).run(max_tokens=1000 * clients)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for pod, (hazard, slow) in enumerate((GOOD, GOOD, POOR, SLOW)):
        serve(folder / f"pod-{pod}", hazard, slow, 10 * pod)
    return folder


def called(*arguments: str) -> Result:
    app = Typer()
    app.add_typer(trace, name="trace")
    app.command(name="advise")(advise)
    return CliRunner().invoke(app, arguments)


def compacted(source: Path, target: Path, *options: str) -> Path:
    done = called("trace", "compact", str(source), str(target), "--jobs", "2", *options)
    assert done.exit_code == 0, done.output
    return target


@pytest.fixture(scope="module")
def small(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compacted(fleet, tmp_path_factory.mktemp("small"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_the_same_traces_make_the_same_bytes(fleet: Path, small: Path, tmp_path: Path) -> None:
    assert contents(compacted(fleet, tmp_path)) == contents(small)


@pytest.mark.long
def test_a_ray_cluster_makes_the_same_bytes(fleet: Path, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert contents(compacted(fleet, tmp_path, "--ray", "local")) == contents(small)


@pytest.mark.long
def test_a_ray_cluster_gives_the_same_advice(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    said = []
    for number, options in enumerate(((), ("--ray", "local"))):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(number)))
        arguments = ("--json", "--resamplings", "2", "--tokens", "200")
        done = called("advise", str(small), *arguments, *options)
        assert done.exit_code == 0, done.exception
        said.append(done.stdout)
    assert said[0] == said[1]


def test_parquet_has_every_step(fleet: Path, small: Path) -> None:
    polars = pytest.importorskip("polars")
    [file] = (small / "model=unnamed").glob("replica=pod-2*4~*/hour=00000/*.parquet")
    rows = polars.read_parquet(file).to_dicts()
    steps = list(read_trace(fleet / "pod-2" / "4"))
    assert len(rows) == len(steps) > 300
    for name in ("step", "seconds", "mode", "ids", "k", "accepted", "emitted", "contexts"):
        assert [row[name] for row in rows] == [step[name] for step in steps], name


def sums_of(parts: Sequence[Path]) -> object:
    whole = together([summarize(part) for part in parts]).sums
    return msgspec.to_builtins(msgspec.structs.replace(whole, capability=None))


def test_the_sums_of_replicas_are_those_of_all_their_traces(fleet: Path) -> None:
    pods = sorted(fleet.iterdir())
    both = sums_of(pods[:2])
    assert both == sums_of([fleet / "pod-[01]"])
    assert both != sums_of(pods[1:3])


def test_each_replica_counts_by_what_it_has_served(fleet: Path) -> None:
    """A busy replica keeps every other request and step; beside it an idle one must, too."""
    busy, idle = fleet / "pod-0", fleet / "pod-1"
    made = Summarizer(most_rows=2000, most_steps=1000)
    for step in find_trace(busy).steps():
        made.add(step)
    thinned, whole = made.summary("busy", seed=0), summarize(idle)
    assert thinned.stride > whole.stride == 1
    assert thinned.steps.stride > 1
    both = together([thinned, whole])
    kept = -(-whole.acceptance.records // thinned.stride)
    assert both.acceptance.records == thinned.acceptance.records + kept
    expected = [len(thinned.steps.seconds), -(-len(whole.steps.seconds) // thinned.steps.stride)]
    ours = both.steps.source >= len(thinned.steps.sources)
    assert [int((~ours).sum()), int(ours.sum())] == expected


def test_advice_of_a_compacted_server_is_that_of_its_trace(
    fleet: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive, "WARM_UP_STEPS", adaptive.WARM_UP_STEPS // 3)
    files = [file for file in find_summaries([small]) if "pod-0" in str(file)]
    ways = (
        predict(fleet / "pod-0", resamplings=2, tokens=200),
        predict(together([load(file) for file in files]), resamplings=2, tokens=200),
    )
    trace_said, small_said = (way.conclude() for way in ways)
    assert small_said.verdict.worth == trace_said.verdict.worth == "yes"
    assert small_said.loads == trace_said.loads
    assert small_said.kinds == trace_said.kinds
    for one, other in zip(trace_said.predictions, small_said.predictions, strict=True):
        assert other.gain == pytest.approx(one.gain, rel=0.05)


def test_replicas_that_stand_out_are_named(small: Path) -> None:
    usual, slow = read_pools(find_summaries([small]))
    assert "6 replicas" in usual.files.name
    assert "2 replicas, steps x 1.40" in slow.files.name
    assert len(usual.remarks) == 2
    assert all("pod-2" in remark and "accepted" in remark for remark in usual.remarks)
    [remark] = slow.remarks
    assert remark.count("pod-3") == 2
    assert "1.40 of the time" in remark


def test_models_are_pools_of_their_own(fleet: Path, tmp_path: Path) -> None:
    for number, model in enumerate(("a", "b", "b")):
        summary = summarize(fleet / "pod-0")
        named = msgspec.structs.replace(summary.sums, model=model)
        folder = tmp_path / str(number)
        folder.mkdir()
        save(dataclasses.replace(summary, sums=named), folder / "trace.summary.npz")
    names = [pool.files.name for pool in read_pools(find_summaries([tmp_path]))]
    assert names == ["a, 1 replica", "b, 2 replicas"]


def test_a_summary_is_read_as_it_was_written(fleet: Path, tmp_path: Path) -> None:
    before, file = summarize(fleet / "pod-0"), tmp_path / "trace.summary.npz"
    save(before, file)
    after = load(file)
    assert (after.name, after.stride) == (before.name, before.stride)
    assert msgspec.to_builtins(after.sums) == msgspec.to_builtins(before.sums)
    assert after.acceptance.labels == before.acceptance.labels
    for name in ("accepted", "offsets", "prompt_tokens"):
        assert np.array_equal(getattr(after.acceptance, name), getattr(before.acceptance, name))
    for field in dataclasses.fields(before.steps):
        one, other = getattr(before.steps, field.name), getattr(after.steps, field.name)
        assert np.array_equal(one, other), field.name


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("head", np.frombuffer(b'{"schema": 1}', dtype=np.uint8), "missing required field"),
        ("head", np.frombuffer(b"{" * 100_000, dtype=np.uint8), "not a summary"),
        ("step_seconds", np.array([1.0, np.nan]), "not finite numbers"),
        ("step_depth", np.zeros(3), "differ in length"),
        ("step_context", np.array([-1.0]), "numbers below 0"),
        ("offsets", np.array([0, 5]), "must describe the same records"),
        ("accepted", np.zeros((0,), dtype=np.uint8), "not a summary"),
    ],
)
def test_a_damaged_summary_is_one_line(
    fleet: Path, tmp_path: Path, name: str, value: np.ndarray, said: str
) -> None:
    file = tmp_path / "trace.summary.npz"
    save(summarize(fleet / "pod-0"), file)
    with np.load(file) as archive:
        arrays = {**archive, name: value}
    np.savez(file, **arrays)
    with pytest.raises(DataError, match=f"trace.summary.npz: .*{said}") as done:
        load(file)
    assert "\n" not in str(done.value)


def test_traces_and_summaries_are_not_mixed(fleet: Path, small: Path) -> None:
    done = called("advise", str(small), str(fleet / "pod-0"))
    assert done.exit_code
    assert "traces and summaries are read apart" in str(done.exception)


def test_a_replica_that_cannot_be_read_fails_alone(fleet: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "steps-1-000000.jsonl").write_text('{"schema": 1, "step": "x"}\n')
    target = str(tmp_path / "small")
    sources = [str(bad), str(fleet / "pod-0" / "4")]
    done = called("trace", "compact", *sources, target, "--jobs", "1")
    assert done.exit_code == 1
    assert "failed: " in done.output
    assert "1 replica," in done.output
    assert len(find_summaries([Path(target)])) == 1
