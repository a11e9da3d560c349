"""The judge's parts that need no engine."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from adaptive_spec.errors import ConfigError, DataError
from adaptive_spec.sim.acceptance.data import steps_of
from benchmarks.judge import gate, main, real_text, traffic
from benchmarks.judge.arms import parse_arm
from benchmarks.judge.cells import LATER, load_cells
from benchmarks.judge.device import Work
from benchmarks.judge.main import STATIC, Plan, key_of
from benchmarks.judge.records import STRETCH, lines
from benchmarks.judge.results import CellFigures, figures, published
from benchmarks.judge.rows import COLD, WARM, Row, RowFile, by_size, curve_of
from benchmarks.judge.script import DRAFT, EMITTED, Text
from benchmarks.judge.start import has_arm
from benchmarks.judge.tables import tuned_on_cell, tuned_on_constant
from benchmarks.judge.traffic import Arrivals, Piece, Stream, Traffic, jobs


def row(cell: str, arm: str, rate: float, part: str = "", seed: int = 1, size: int = 8) -> Row:
    """A run with this rate in every step."""
    steps = [Work(requests=size, tokens=size, emitted=size)] * 100
    seconds = [size / rate] * 100
    return Row(
        cell=cell,
        arm=arm,
        seed=seed,
        part=part,
        runs=arm,
        key="",
        steps=100,
        tokens=100 * size,
        seconds=sum(seconds),
        loaded=(50 * size, sum(seconds[:50])),
        curve=curve_of(steps, seconds),
        sizes=by_size(steps, seconds),
        verified=1.0,
    )


def test_every_cell_can_be_read_and_has_a_name_of_its_own() -> None:
    cells = load_cells()
    groups = {c.group for c in cells if not c.extra and not c.group.startswith(LATER)}
    assert len(groups) == 7
    assert {cell.group for cell in cells if cell.quick} == groups
    assert {cell.device for cell in cells} == {"h100-8b", "a100-8b", "h100-moe", "l40s-8b"}
    for cell in cells:
        assert cell.measure in ("loaded", "whole", "tpot")


def test_a_cells_file_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cells.yaml"
    file.write_text("constant:\n  - {devices: [h100-8b], client: [1]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="client"):
        load_cells(file)
    twice = "constant:\n" + 2 * "  - {devices: [h100-8b], records: [a], clients: [1]}\n"
    file.write_text(twice, encoding="utf-8")
    with pytest.raises(ConfigError, match="two cells"):
        load_cells(file)
    long = "constant:\n  - {devices: [h100-8b], prompts: 140000, clients: [1]}\n"
    file.write_text(long, encoding="utf-8")
    with pytest.raises(ConfigError, match="over 131072 tokens"):
        load_cells(file)


def test_a_script_accepts_what_a_replay_of_the_record_accepts() -> None:
    played = lines("hazard:0.7", "eagle", 7)
    end = int(played.data.offsets[1])
    for k in (1, 3, 7):
        first, accepted = steps_of(played.data, k)
        text, found = Text(played, 0), []
        assert text.emit(0) == 1  # the prompt's own token
        text.draft(k, 0)
        while text.place < end and text.at < end:
            found.append((text.place, text.emit(k) - 1))
            text.draft(k, 0)
        count = int(np.searchsorted(first, end))
        assert found == list(zip(first[:count].tolist(), accepted[:count].tolist(), strict=True))


def test_a_request_with_holes_is_accepted_no_more() -> None:
    played = lines("hazard:0.9", "eagle", 7)
    text = Text(played, 0)
    text.lost = True
    text.draft(7, 0)
    assert text.drafted == 7
    assert text.emit(7) == 1


def test_records_that_are_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADAPTIVE_SPEC_DATA", str(tmp_path))
    lines.cache_clear()
    with pytest.raises(DataError, match="specdecodebench"):
        lines("llama:both", "eagle", 7)
    with pytest.raises(DataError, match="no records 'llama:prose'"):
        lines("llama:prose", "eagle", 7)


def test_the_same_seed_asks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Traffic(pieces=(Piece(4, 40),), records=("hazard:0.5",), lengths="lognormal")
    first, second = (
        [(job.tokens, job.start) for job in jobs(asked, "eagle", 7, 1)] for _ in range(2)
    )
    assert first == second
    # Published figures are of these draws: a new field of a load may not move them.
    assert first[:2] == [(27, 12512), (45, 54848)]
    assert [(job.tokens, job.start) for job in jobs(asked, "eagle", 7, 2)] != first
    assert np.mean([tokens for tokens, _ in first]) == pytest.approx(64, rel=0.4)


def test_tenants_take_turns_and_pieces_have_their_own_text() -> None:
    mixed = Traffic(pieces=(Piece(4, 4),), records=("hazard:0.9", "hazard:0.2"))
    easy, hard = lines("hazard:0.9", "eagle", 7), lines("hazard:0.2", "eagle", 7)
    assert [job.lines for job in jobs(mixed, "eagle", 7, 1)] == [easy, hard, easy, hard]
    pieces = Piece(4, 1, ("hazard:0.9",)), Piece(4, 1, ("hazard:0.2",))
    asked = jobs(Traffic(pieces=pieces, records=()), "eagle", 7, 1)
    assert [job.lines for job in asked] == [easy, hard]


def test_a_conversations_prompt_goes_on_from_what_was_said() -> None:
    stream = Stream(clients=2, requests=6, turns=2, wait=3.0, prompts=5, lengths="even", mean=4)
    made = jobs(Traffic(streams=(stream,), records=("hazard:0.5",)), "eagle", 7, 1)
    assert [job.after for job in made] == [-1, -1, 0, 1, 2, 3]
    assert [job.wait > 0.0 for job in made] == [False, False, True, True, True, True]
    for begins, goes_on in ((0, 2), (1, 3)):
        first, second = made[begins], made[goes_on]
        assert second.history == [*first.history, *[DRAFT] * 5, *[EMITTED] * first.tokens]
        assert second.prompt == len(second.history) + 5
    heads = [tuple(made[number].history) for number in (0, 1, 4, 5)]
    assert len(set(heads)) == 4, "conversations are told apart"


def test_arrivals_swing_and_come_in_bursts() -> None:
    stream = Stream(requests=3000, rate=(1.0, 9.0), period=20.0, burst=3)
    made = jobs(Traffic(streams=(stream,), records=("hazard:0.5",)), "eagle", 7, 1)
    times = np.array([job.arrival for job in made])
    assert (times[::3] == times[2::3]).all()
    assert len(set(times)) == 1000
    high = np.abs(times[::3] % 20.0 - 10.0) < 5.0
    # A sine from 1 to 9: its upper half has the mean 5 + 8 / pi, the lower one 5 - 8 / pi.
    assert high.mean() == pytest.approx(0.5 + 0.8 / np.pi, abs=0.03)
    assert times[-1] == pytest.approx(1000 / 5.0, rel=0.1)


def test_acceptance_changes_within_a_long_answer() -> None:
    data = lines("hazard:0.8-0.3", "eagle", 7).data
    starts = data.offsets[:-1][data.lengths >= STRETCH + 300]
    early, late = (
        np.concatenate([data.accepted[s + first : s + first + 300] for s in starts])
        for first in (0, STRETCH)
    )
    assert early.mean() > 3 * late.mean() > 0.3


def test_mooncakes_lumps_are_spread_over_their_three_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "load"
    folder.mkdir()
    rows = [
        {"timestamp": 3000 * (n // 4), "input_length": 70_000, "output_length": 9}
        for n in range(40)
    ]
    text = b"\n".join(msgspec.json.encode(each) for each in rows)
    (folder / "mooncake.jsonl").write_bytes(text)
    monkeypatch.setenv("ADAPTIVE_SPEC_DATA", str(tmp_path))
    monkeypatch.setitem(traffic._TRACES, "mooncake", "mooncake.jsonl")
    asked = Traffic(arrivals=Arrivals("mooncake", 4 / 3, 40), records=("hazard:0.5",))
    made = jobs(asked, "eagle", 7, 1)
    times = [job.arrival for job in made]
    assert times == sorted(times)
    assert len(set(times)) == 40
    assert times[-1] == pytest.approx(30.0)
    assert {job.prompt for job in made} == {traffic._LONGEST_OF_TRACE}


def test_vllms_table_takes_the_best_k_of_each_batch_size() -> None:
    ks = {0: 50.0, 1: 80.0, 3: 100.0}
    small = {k: [row("c", f"k{k}", rate, size=4)] for k, rate in ks.items()}
    large = {k: [row("c", f"k{k}", 200 - rate, size=64)] for k, rate in ks.items()}
    joined = {
        k: [msgspec.structs.replace(small[k][0], sizes={**small[k][0].sizes, **large[k][0].sizes})]
        for k in ks
    }
    assert tuned_on_cell(joined) == "table:1-4=3,5-512=0"
    cells = [c for c in load_cells() if c.name == "h100-8b eagle llama:both 16"]
    by_load = {(cells[0].name, k): same for k, same in small.items()}
    assert tuned_on_constant(cells, by_load) == "table:1-512=3"


def test_figures_hold_an_arm_against_the_best_fixed_k(tmp_path: Path) -> None:
    cell = next(c for c in load_cells() if c.name == "h100-8b eagle hazard:0.15 64")
    file = RowFile(tmp_path / "rows.jsonl")
    for arm, rate in (("none", 80.0), ("k0", 120.0), ("k1", 90.0), ("k3", 100.0)):
        file.add(row(cell.name, arm, rate))
    file.add(row(cell.name, "goodput", 95.0, COLD))
    file.add(row(cell.name, "goodput", 110.0, WARM))
    (found,) = figures([cell], RowFile(file.path), [1])
    assert found.best == "k3"
    assert found.over("goodput warm", "k3") == pytest.approx([1.1])
    assert found.over("goodput warm", "none") == pytest.approx([1.375])
    assert found.arms["goodput cold"].cold == pytest.approx([0.95])
    charged = found.over("goodput warm", "none", charge=True)
    assert charged[0] < 1.375
    again = msgspec.json.decode(msgspec.json.encode(found), type=CellFigures)
    assert again == found


def test_a_row_file_goes_on_after_a_kill(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    file.add(row("c", "k1", 10.0))
    whole = file.path.read_bytes()
    file.path.write_bytes(whole + whole[:50])
    known = RowFile(file.path)
    assert known.get("c", "k1", 1) is not None
    known.write_sorted()
    assert file.path.read_bytes() == whole
    file.path.write_bytes(whole[:50] + b"\n" + whole)
    with pytest.raises(DataError, match="row 1 is damaged"):
        RowFile(file.path)


def test_what_has_been_run_is_not_run_again(tmp_path: Path) -> None:
    cell = next(c for c in load_cells() if c.name == "h100-8b eagle hazard:0.15 64")
    file = RowFile(tmp_path / "rows.jsonl")
    arms = ["none", "k1"]
    assert [task.arm for task in Plan([cell], arms, [1], file).first()] == arms
    done = msgspec.structs.replace(row(cell.name, "k1", 9.0), key=key_of(cell, "k1", 1))
    file.add(done)
    assert [task.arm for task in Plan([cell], arms, [1], file).first()] == ["none"]
    file.add(msgspec.structs.replace(done, key="of other code"))
    assert [task.arm for task in Plan([cell], arms, [1], file).first()] == arms


def test_tables_wait_for_the_fixed_k(tmp_path: Path) -> None:
    cell = next(c for c in load_cells() if c.name == "h100-8b eagle hazard:0.15 64")
    file = RowFile(tmp_path / "rows.jsonl")
    plan = Plan([cell], ["table-cell"], [1], file)
    assert {task.arm for task in plan.first()} == {"k0", *STATIC}
    assert plan.second() == []
    for arm in ("k0", *STATIC):
        file.add(row(cell.name, arm, 10.0 + int(arm[1:])))
    (task,) = plan.second()
    assert (task.arm, task.ran) == ("table-cell", "table:1-512=7")


def test_cells_wait_for_the_environment_of_their_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = tmp_path / "cells.yaml"
    entry = "devices: [h100-8b], records: ['hazard:0.5'], clients: [4]"
    cells.write_text(f"constant:\n  - {{{entry}}}\n  - {{{entry}, engine: sglang}}\n")
    out, results = tmp_path / "out", tmp_path / "results.json"
    out.mkdir()
    file = RowFile(out / "rows.jsonl")
    for cell in load_cells(cells):
        for arm, rate in (("none", 80.0), ("k1", 90.0)):
            file.add(msgspec.structs.replace(row(cell.name, arm, rate), key=key_of(cell, arm, 1)))
    asked = ["--file", str(cells), "--out", str(out), "--results", str(results)]
    for here in ("sglang", "vllm"):
        monkeypatch.setattr(main, "installed", lambda engine, here=here: engine == here)
        lacking = "sglang-rule" if here == "vllm" else "table-cell"
        assert main.main([*asked, "--arms", f"none,k1,{lacking}"]) == 0
        said = capsys.readouterr().err
        other = {"sglang": "vLLM", "vllm": "SGLang"}[here]
        assert f"wait for the environment that {other} is installed in" in said
        assert "has no arm" in said
        assert "h100-8b eagle hazard:0.5 4" in said
    # Neither run has taken out what the other has found.
    names = [cell.name for cell in published(results)]
    assert names == ["h100-8b eagle hazard:0.5 4", "sglang h100-8b eagle hazard:0.5 4"]
    assert published(results)[1].arms["k1"].charged == []


def test_arms_that_did_not_run_again_keep_their_figures(tmp_path: Path) -> None:
    cell = next(c for c in load_cells() if c.name == "h100-8b eagle llama:both 16")
    found = []
    for number, arms in enumerate((("k1", "none"), ("k1", "k3"))):
        file = RowFile(tmp_path / f"{number}.jsonl")
        for arm in arms:
            file.add(row(cell.name, arm, 80.0 + number))
        found += figures([cell], file, [1])
    kept = found[1].beside(found[0])
    assert list(kept.arms) == ["k1", "k3", "none"]
    assert kept.arms["k1"] == found[1].arms["k1"] != found[0].arms["k1"]


def test_sglangs_scheduler_has_one_k_per_batch(tmp_path: Path) -> None:
    cell = next(c for c in load_cells() if c.name == "sglang h100-8b eagle llama:both 16")
    file = RowFile(tmp_path / "rows.jsonl")
    arms = [task.arm for task in Plan([cell], [], [1], file).first()]
    assert arms == ["none", *STATIC, "sglang-rule", "goodput"]
    for arm in ("oracle", "one-k", "both", "sglang-tiers", "table-cell"):
        assert has_arm("vllm", arm)
        assert not has_arm("sglang", arm)
    assert not has_arm("vllm", "sglang-rule")


def test_the_gate_names_what_was_lost() -> None:
    before = {
        "a": gate.Scores("g", 100.0, 100.0),
        "b": gate.Scores("g", 100.0, 100.0),
        "c": gate.Scores("h", 100.0, 100.0),
    }
    assert gate.verdict(before, before)[1]
    one = {**before, "a": gate.Scores("g", 100.0, 99.2)}  # the mean of its group stays in bounds
    assert gate.verdict(one, before)[1]
    text, good = gate.verdict({**before, "a": gate.Scores("g", 97.9, 104.0)}, before)
    assert not good
    assert "g: a" in next(line for line in text.splitlines() if "LOST" in line)
    text, good = gate.verdict({**before, "c": gate.Scores("h", 99.4, 100.0)}, before)
    assert not good
    assert "h: mean" in next(line for line in text.splitlines() if "LOST" in line)


def test_arms_are_read_as_they_are_written() -> None:
    assert parse_arm("k3").k == 3
    assert parse_arm("table:1-4=6,5-256=2").table == [(1, 4, 6), (5, 256, 2)]
    made = parse_arm('policy:static={"k": 2}')
    assert (made.policy, made.options, made.learns) == ("static", {"k": 2}, True)
    assert not parse_arm("sglang-tiers").learns
    with pytest.raises(ConfigError, match="unknown arm 'quick'"):
        parse_arm("quick")


def test_a_file_whose_groups_all_came_later_says_what_to_add(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["--file", str(real_text.FILE), "--out", str(tmp_path)]) == 1
    assert "use --all or --groups" in capsys.readouterr().err
