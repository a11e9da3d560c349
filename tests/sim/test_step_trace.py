"""The one reader of traces: the same steps, whatever disks, hosts and clients make of them."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

from adaptive_spec.commands.cli import with_installed_commands
from adaptive_spec.errors import AdaptiveSpecError, DataError
from adaptive_spec.operation.segments import is_trace_place
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.advice.kept import prediction_path
from adaptive_spec.sim.advice.summary import observe
from adaptive_spec.sim.explain import switches
from adaptive_spec.sim.fit import read_steps as read_fit
from adaptive_spec.sim.hardware.from_trace import profile_from_trace, read_timed_steps, servers
from adaptive_spec.sim.load.step_trace import read_step_trace
from adaptive_spec.sim.logged_steps import LoggedTrace
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.step_trace import find_trace, read_steps
from tests.refused import refused
from tests.sim.recorded_steps import NAME, step_row, write_steps

LIMITS = {"capability": {"level": 2, "max_draft_tokens": 4}, "kv_total_tokens": 120_000}


def served(steps: int = 480, *, slow: float = 1.0, seed: int = 0) -> list[dict[str, Any]]:
    """Steps of a server whose K and load vary; the context of each request grows as it emits."""
    random = np.random.default_rng(seed)
    live: list[list[int]] = []  # number, tokens to go, context
    rows, now, number = [], 100.0, 0
    for step in range(steps):
        new = 0
        while len(live) < (1, 4, 8)[step // 40 % 3]:
            live.append([number, int(random.integers(20, 60)), int(random.integers(200, 400))])
            number, new = number + 1, new + live[-1][2]
        k = int(random.integers(5))
        running, batch = live, len(live)
        accepted = [min(int(random.geometric(0.3)) - 1, k) for _ in running]
        seconds = 0.006 + 4e-5 * k * batch + 6e-5 * batch + 9e-4 * k + 1.2e-5 * new * (step > 0)
        seconds *= slow * float(random.uniform(0.98, 1.02))
        now += seconds
        rows.append(
            step_row(
                step + 2,
                [f"r{each[0]}" for each in running],
                [k] * batch,
                accepted,
                now=now,
                seconds=seconds,
                prefill_tokens=new if step else 0,
                context_tokens=sum(each[2] for each in running),
                contexts=[each[2] for each in running],
                available=[4] * batch,
                possible=[4] * batch,
                engine_k=4,
            )
        )
        for each, right in zip(running, accepted, strict=True):
            each[1] -= right + 1
            each[2] += right + 1
        live = [each for each in live if each[1] > 0]
    rows[0] |= LIMITS
    return rows


def written(folder: Path, rows: list[dict[str, Any]], name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_steps(folder / name, *rows)
    return folder


READERS: dict[str, Callable[[Path], object]] = {
    "observe": lambda place: observe(place),
    "times": lambda place: read_timed_steps(place).seconds.sum(),
    "log": lambda place: sum(1 for _ in LoggedTrace(place).steps()),
    "load": lambda place: [request.output_tokens for request in read_step_trace(place)],
    "fit": lambda place: read_fit(place)[0].verified.sum(),
    "acceptance": lambda place: load_acceptance([place], drafter_list="", seed=0, kmax=4).records,
}


def gzipped(folder: Path, content: bytes) -> Path:
    return packed(folder, "gz", gzip.compress(content))


def zstd(folder: Path, content: bytes) -> Path:
    whole = zstandard.ZstdCompressor().compress
    return packed(folder, "zst", whole(content[:5000]) + whole(content[5000:]))


def packed(folder: Path, suffix: str, content: bytes) -> Path:
    file = folder / "replica" / f"steps-1-000000.jsonl.{suffix}"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return folder


def a_pattern(folder: Path, content: bytes) -> Path:
    gzipped(folder, content)
    return folder / "*lic[ab]"


def a_url(folder: Path, content: bytes) -> Path:
    files = fsspec.filesystem("memory")
    files.pipe_file(f"/{folder.name}/eu/steps-1-000000.jsonl", content)
    files.pipe_file(f"/{folder.name}/eu/notes.txt", b"of others")
    return Path(f"memory://{folder.name}")


@pytest.mark.parametrize("place", [gzipped, zstd, a_pattern, a_url])
@pytest.mark.parametrize("reader", READERS)
def test_a_trace_is_the_same_packed_in_folders_by_pattern_and_under_a_url(
    tmp_path: Path, reader: str, place: Callable[[Path, bytes], Path]
) -> None:
    plain = written(tmp_path / "plain", served())
    other = place(tmp_path / f"{reader}-{place.__name__}", (plain / NAME).read_bytes())
    if reader == "observe":
        whole, found = observe(plain), observe(other)
        assert (whole.loads, whole.kinds) == (found.loads, found.kinds)
    else:
        assert READERS[reader](plain) == READERS[reader](other)


def test_places_without_a_trace_are_named(tmp_path: Path) -> None:
    assert not is_trace_place("http://localhost:8000")
    assert not is_trace_place("localhost:8000")
    for place in (tmp_path / "no*thing", tmp_path / "nothing"):
        with pytest.raises(DataError, match=r"no(\*)?thing: no such directory or file"):
            find_trace(place)
    with pytest.raises(DataError, match="memory://none: no steps-"):
        find_trace(Path("memory://none"))
    with pytest.raises(DataError, match="nosuchscheme://a/b: cannot be read: Protocol not known"):
        find_trace(Path("nosuchscheme://a/b"))
    damaged = packed(tmp_path, "zst", zstandard.MAGIC_NUMBER.to_bytes(4, "little") + b"\xff" * 99)
    with pytest.raises(DataError, match=r"zst:1: cannot be read: damaged"):
        list(read_steps(damaged))


def test_processes_are_read_in_order_of_their_numbers(tmp_path: Path) -> None:
    rows = served(200)
    written(tmp_path, rows[:100], "steps-9999-000000.jsonl")
    written(tmp_path, [rows[100] | LIMITS, *rows[101:]], "steps-10001-000000.jsonl")
    found = list(read_steps(tmp_path))
    assert [step.step for step in found] == [row["step"] for row in rows]
    assert [step.process for step in found] == [0] * 100 + [1] * 100


def test_a_step_number_that_is_repeated_is_of_another_process(tmp_path: Path) -> None:
    first = served(1)[0]
    found = list(read_steps(written(tmp_path, [first, first])))
    assert [step.process for step in found] == [0, 1]


def test_positions_behind_a_rejection_were_not_tried(tmp_path: Path) -> None:
    rows = [step_row(n, ["a"], [3], [1], now=0.1 * n, seconds=0.1) for n in range(2, 40)]
    rows[0] |= LIMITS
    assert observe(written(tmp_path, rows)).kinds[0].by_position == [1.0, 0.0, None, None]


@pytest.mark.parametrize("cut", [0, 40])
def test_what_a_server_writes_meanwhile_is_not_read(tmp_path: Path, cut: int) -> None:
    rows = served(200)
    folder = written(tmp_path / "trace", rows[:100])
    content = "".join(json.dumps(row) + "\n" for row in rows[100:])
    with (folder / NAME).open("a") as file:
        file.write(content[:cut])
    trace, log = find_trace(folder), LoggedTrace(folder)
    key = prediction_path(trace, {})
    with (folder / NAME).open("a") as file:
        file.write(content[cut:])
    written(folder, [row | {"step": 1000 + row["step"]} for row in rows], "steps-1-000001.jsonl")
    assert sum(1 for _ in trace.steps()) == sum(1 for _ in log.steps()) == 100
    assert prediction_path(trace, {}) == key


def test_a_segment_that_is_deleted_meanwhile_is_named(tmp_path: Path) -> None:
    log = LoggedTrace(written(tmp_path, served(100)))
    (tmp_path / NAME).unlink()
    with refused(DataError, NAME, "cannot be read"):
        list(log.steps())


def _used_again(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same steps of clients that each use one id for all of their requests."""
    last = {name: at for at, row in enumerate(rows) for name in row["ids"]}
    free, held, found = [f"client-{n}" for n in range(8)], dict[str, str](), []
    for at, row in enumerate(rows):
        for name in row["ids"]:
            if name not in held:
                held[name] = free.pop()
        found.append(row | {"ids": [held[name] for name in row["ids"]]})
        free += [held.pop(name) for name in row["ids"] if last[name] == at]
    return found


def test_ids_that_clients_use_again_are_other_requests(tmp_path: Path) -> None:
    rows = served(1500)
    own = observe(written(tmp_path / "own", rows)).kinds[0].requests
    again = observe(written(tmp_path / "again", _used_again(rows))).kinds[0].requests
    assert own > 200
    assert again == pytest.approx(own, rel=0.1)
    # An id of whichever request stands at its place: followed by context.
    placed = [row | {"ids": [f"place-{n}" for n in range(len(row["ids"]))]} for row in rows]
    assert observe(written(tmp_path / "placed", placed)).kinds[0].requests == pytest.approx(
        own, rel=0.06
    )


def test_a_context_that_shrinks_is_a_new_request_of_a_load(tmp_path: Path) -> None:
    contexts = [300, 302, 304, 100, 102, 104]
    times = [1.0, 1.01, 1.02, 61.0, 61.01, 61.02]
    pairs = enumerate(zip(times, contexts, strict=True))
    rows = [step_row(n, ["x"], [1], [1], now=now, contexts=[c]) for n, (now, c) in pairs]
    found = list(read_step_trace(written(tmp_path, rows)))
    assert [(each.prompt_tokens, each.output_tokens) for each in found] == [(300, 7), (100, 7)]
    assert [round(each.arrival) for each in found] == [0, 60]
    assert len({each.id for each in found}) == 2


def test_contexts_that_count_drafts_ahead_are_of_one_request(tmp_path: Path) -> None:
    """As under asynchronous scheduling: drafts count until they are rejected."""
    contexts = [100, 105, 110, 103, 108, 113, 106, 107]
    rows = [step_row(n, ["x"], [4], [0], contexts=[c]) for n, c in enumerate(contexts)]
    assert {n for step in read_steps(written(tmp_path, rows)) for n in step.requests} == {0}


@pytest.fixture
def odd_file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = written(tmp_path, served(100)) / "steps-2-000000.jsonl"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(request.param if request.param != "loop" else path)
    return tmp_path


@pytest.mark.parametrize("odd_file", ["pipe", "/dev/zero"], indirect=True)
@pytest.mark.parametrize("command", ["advise", "profile", "explain", "breakeven"])
def test_what_is_no_regular_file_is_refused_by_name(odd_file: Path, command: str) -> None:
    done = CliRunner().invoke(with_installed_commands(), [command, str(odd_file)])
    assert isinstance(done.exception, DataError)
    assert "steps-2-000000.jsonl:1: cannot be read: not a regular file" in str(done.exception)


@pytest.mark.parametrize("odd_file", ["/nowhere", "/etc", "loop"], indirect=True)
def test_a_link_to_nothing_is_no_segment(odd_file: Path) -> None:
    assert sum(1 for _ in read_steps(odd_file)) == 100


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("capability", {"level": 2, "max_draft_tokens": 1 << 40}),
        ("capability", {"level": 2, "max_draft_tokens": 1 << 40, "tree_nodes": [1, 2]}),
        ("batch_size", 10**9),
        ("engine_k", 10**9),
        ("contexts", [1 << 62]),
        ("context_tokens", 1 << 62),
        ("batch_tokens", 1 << 62),
        ("prefill_tokens", 1 << 62),
        ("prompt_batches", [[1, 1 << 62, 1.0]]),
        ("depth", 5),
        ("seconds", 1e308),
        ("now", 1e308),
    ],
)
def test_numbers_that_size_arrays_are_bounded(tmp_path: Path, column: str, value: object) -> None:
    rows = served(100)
    rows[40] |= {column: value}
    with refused(AdaptiveSpecError, NAME, "step 42"):
        observe(written(tmp_path, rows))


def test_servers_of_different_speed_are_told_apart(tmp_path: Path) -> None:
    written(tmp_path, served(), "steps-1-000000.jsonl")
    written(tmp_path, served(seed=1), "steps-2-000000.jsonl")
    assert len(servers(find_trace(tmp_path))) == 1
    written(tmp_path, served(slow=3.0, seed=2), "steps-3-000000.jsonl")
    alike, slow = servers(find_trace(tmp_path))
    assert alike.processes == [str(tmp_path / "steps-1"), str(tmp_path / "steps-2")]
    assert slow.processes == [str(tmp_path / "steps-3")]
    goodput = parse_policy("goodput")
    for read in (
        lambda: profile_from_trace(tmp_path, name="both"),
        lambda: switches(tmp_path, goodput),
    ):
        with refused(DataError, "servers of different speed", "steps-1", "steps-3: x "):
            read()
    done = CliRunner().invoke(with_installed_commands(), ["breakeven", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("Best: K") == 2
    assert all(f"steps-{number}" in done.stdout for number in (1, 2, 3))


def test_each_of_two_servers_gets_its_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = written(tmp_path / "traces", served())
    written(folder, served(slow=3.0, seed=2), "steps-2-000000.jsonl")
    options = ["--tokens", "100", "--resamplings", "2", "--html", str(tmp_path / "advice.html")]
    done = CliRunner().invoke(with_installed_commands(), ["advise", str(folder), *options])
    assert done.exit_code == 0, done.output
    for number in (1, 2):
        assert f"Server {number} of 2, as speeds differ: {folder}/steps-{number}" in done.stdout
        assert f"wrote {tmp_path}/advice-{number}.html" in done.stderr
        assert (tmp_path / f"advice-{number}.html").exists()
    assert done.stdout.count("Worth it?") == 2
    assert "cannot tell" not in done.stdout


def test_a_step_in_which_the_machine_stood_still_is_no_busy_time(tmp_path: Path) -> None:
    rows = served()
    whole = observe(written(tmp_path / "whole", rows))
    rows[200] |= {"seconds": 7200.0}
    stalled = observe(written(tmp_path / "stalled", rows))
    assert stalled.seconds == pytest.approx(whole.seconds, rel=0.2)
    assert [load.clients for load in stalled.loads] == [load.clients for load in whole.loads]
    for one, other in zip(whole.loads, stalled.loads, strict=True):
        assert other.share == pytest.approx(one.share, abs=0.1)


def test_all_that_a_trace_lacks_is_said_at_once(tmp_path: Path) -> None:
    rows = [step_row(n, ["a"], [2], [1], contexts=[10]) for n in range(100)]
    with refused(DataError, "every step decoded 1", "every step verified K = 2", "2 deep"):
        profile_from_trace(written(tmp_path, rows), name="run")


def test_a_copy_of_a_trace_has_the_same_advice_kept(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", served(100))
    shutil.copytree(folder, tmp_path / "b")
    paths = {prediction_path(find_trace(tmp_path / name), {}) for name in ("a", "b")}
    assert len(paths) == 1
