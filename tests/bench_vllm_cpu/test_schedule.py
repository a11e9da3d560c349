from __future__ import annotations

from fake_cells import cell

from benchmarks.vllm_cpu.schedule import best_k, static_table, table_of


def test_best_k_is_by_median_and_zero_where_no_speculation_wins() -> None:
    cells = [
        *(cell("none", 1, repeat, tokens=100) for repeat in range(3)),
        *(
            cell("static2", 1, repeat, tokens=tokens)
            for repeat, tokens in enumerate((150, 150, 150))
        ),
        *(
            cell("static6", 1, repeat, tokens=tokens)
            for repeat, tokens in enumerate((900, 140, 140))
        ),
        cell("none", 16, 0, tokens=200),
        cell("static2", 16, 0, tokens=190),
        cell("ours", 16, 0, tokens=999),
    ]
    assert best_k(cells) == {1: 2, 16: 0}


def test_each_measured_size_stands_for_those_up_to_it() -> None:
    assert table_of({1: 6, 4: 3}) == [(1, 1, 6), (2, 4, 3), (5, 16, 3)]
    assert table_of({16: 2}) == [(1, 16, 2)]
    assert table_of({}) is None


def test_a_static_k_is_a_table_of_one_row_and_kmax_needs_none() -> None:
    assert static_table(2) == [(1, 16, 2)]
    assert static_table(6) is None
