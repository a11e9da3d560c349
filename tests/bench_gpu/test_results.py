from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.results import Results

KEYS = st.text("abc/", min_size=1, max_size=6)


@given(st.lists(st.tuples(KEYS, st.integers() | st.text())), st.integers(0, 40))
def test_a_kill_while_writing_loses_at_most_the_last_result(
    tmp_path_factory: object, rows: list[tuple[str, object]], cut: int
) -> None:
    path = Path(tmp_path_factory.mktemp("results")) / "results.jsonl"  # type: ignore[attr-defined]
    first = Results(path)
    for key, value in rows:
        first.add(key, value)
    if rows:
        whole = path.read_bytes()
        last = len(whole.splitlines()[-1])
        path.write_bytes(whole[: len(whole) - min(cut, last)])
    again = Results(path)
    kept = rows if not cut else rows[:-1]
    assert again.found == dict(kept)
    again.add("new", [1])
    assert Results(path).found == {**dict(kept), "new": [1]}


def test_results_are_found_as_a_later_run_reads_them(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add("steps", {"by_k": {1: (2, 3)}})
    assert results.found["steps"] == {"by_k": {"1": [2, 3]}}
    assert Results(tmp_path / "results.jsonl").found == results.found
    assert "steps" in results
