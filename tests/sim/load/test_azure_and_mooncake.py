import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_spec.sim.load.trace_files import read_azure, read_mooncake

ROWS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)),
    min_size=1,
    max_size=30,
)
WRITES_A_FILE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)


def figures(requests):
    return [
        (round(each.arrival * 1000), each.prompt_tokens, each.output_tokens) for each in requests
    ]


def expected(rows):
    return [(time - rows[0][0], max(prompt, 1), max(output, 1)) for time, prompt, output in rows]


def write(path, text, packed):
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


@WRITES_A_FILE
@given(rows=ROWS, packed=st.booleans())
def test_azure_rows_in_seconds_come_back_plain_or_packed(tmp_path, rows, packed):
    rows = sorted(rows)
    text = "arrival_s,input_tokens,output_tokens\n"
    text += "".join(f"{time / 1000},{prompt},{output}\n" for time, prompt, output in rows)

    assert figures(read_azure(write(tmp_path / "load", text, packed))) == expected(rows)


@WRITES_A_FILE
@given(rows=ROWS, packed=st.booleans())
def test_mooncake_rows_come_back_plain_or_packed(tmp_path, rows, packed):
    rows = sorted(rows)
    lines = [
        json.dumps({"timestamp": t, "input_length": i, "output_length": o, "hash_ids": [1, 2]})
        for t, i, o in rows
    ]

    path = write(tmp_path / "load", "\n".join(lines), packed)
    assert figures(read_mooncake(path, "ms")) == expected(rows)


def test_azure_dates_count_from_the_first_row_and_ids_are_row_numbers(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 23:59:59.9799600,374,44\n"
        "2023-11-17 00:00:04.2945390,396,0\n"
    )
    first, second = read_azure(path)

    assert (first.id, first.arrival, first.output_tokens) == ("2", 0.0, 44)
    assert second.id == "3"
    assert second.arrival == pytest.approx(4.314579, abs=1e-6)
    assert second.output_tokens == 1


def test_columns_may_stand_in_another_order_with_others_between(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text("output_tokens,who,arrival_s,input_tokens\n4,me,1.5,3\n\n5,you,2.5,6\n")

    assert figures(read_azure(path)) == [(0, 3, 4), (1000, 6, 5)]


def test_reading_is_lazy(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,1,1\nbroken\n")

    assert next(read_azure(path)).id == "2"


@pytest.mark.parametrize(
    ("name", "rows", "output", "last"),
    [("conv", 19_366, 4_088_665, 3501.72), ("code", 8_819, 245_896, 3435.95)],
)
def test_the_azure_hour_is_read_whole(data, name, rows, output, last):
    requests = list(read_azure(data / f"load/azure_llm_2023_{name}.csv.gz"))

    assert len(requests) == rows
    assert sum(request.output_tokens for request in requests) == output
    assert requests[-1].arrival == pytest.approx(last, abs=0.01)


def test_the_mooncake_hour_is_read_whole(data):
    requests = list(read_mooncake(data / "load/mooncake_conversation_trace.jsonl.gz"))

    assert len(requests) == 12_031
    assert sum(request.output_tokens for request in requests) == 4_122_048
    assert requests[-1].arrival == pytest.approx(3536.999)
