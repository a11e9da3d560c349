from __future__ import annotations

import gzip

import numpy as np
import polars as pl
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.gpus import gpu_facts
from adaptive_spec.sim.hardware.models import model_facts
from adaptive_spec.sim.hardware.roofline import EngineOverhead
from adaptive_spec.sim.hardware.table_files import numbers, read_table
from adaptive_spec.sim.hardware.tables import (
    decode_plane,
    layer_seconds,
    prompt_plane,
    table_profile,
)

NO_ENGINE = EngineOverhead(per_step=0.0, per_request=0.0, source="none")
LLAMA = model_facts("llama-3.1-8b")


def test_the_decode_plane_recovers_a_plane():
    requests, context = np.meshgrid([1.0, 8.0, 64.0], [100.0, 1000.0, 30000.0])
    requests, context = requests.ravel(), context.ravel()
    seconds = 1e-5 + 2e-7 * requests + 3e-9 * context
    plane = decode_plane(np.stack([requests, context, seconds], axis=1))
    assert plane == pytest.approx((1e-5, 2e-7, 3e-9), rel=1e-6)


def test_the_prompt_plane_leaves_out_what_a_kernel_costs_anyway():
    tokens = np.array([16.0, 256.0, 2048.0, 8192.0])
    pairs = tokens * tokens / 2
    seconds = 1e-5 + 4e-8 * tokens + 3e-12 * pairs
    assert prompt_plane(np.stack([tokens, pairs, seconds], axis=1), 1e-5) == pytest.approx(
        (4e-8, 3e-12), rel=1e-6
    )


def test_llmservingsim_layers_are_the_sum_of_their_operators(data):
    path = data / "cost" / "llmservingsim_RTX4090_Llama-3.1-8B_bf16_tp1_dense.csv.gz"
    frame = pl.read_csv(path).filter(pl.col("tokens") == 64)
    times = dict(frame.select("layer", "time_us").rows())
    once = times.pop("embedding") + times.pop("final_layernorm")
    expected = (sum(times.values()) + times["layernorm"] + once / 32) / 1e6
    at_64 = 8  # of 1, 2, 4, 8, 16, 24, 32, 48, 64, ... tokens
    assert layer_seconds(path, 32)[at_64] == pytest.approx(expected)


def test_tables_and_roofline_of_one_machine_agree(data):
    from adaptive_spec.sim.hardware.base import Hardware
    from adaptive_spec.sim.hardware.roofline import roofline_profile

    gpu = gpu_facts("rtx4090")
    measured = Hardware(table_profile(gpu, LLAMA, data, engine=NO_ENGINE))
    computed = Hardware(roofline_profile(gpu, LLAMA, engine=NO_ENGINE))
    for batch in (1, 16, 64):
        ours = computed.verify_seconds(batch, batch, 1000 * batch, 0, 0)
        theirs = measured.verify_seconds(batch, batch, 1000 * batch, 0, 0)
        assert ours == pytest.approx(theirs, rel=0.15), batch


def test_a_damaged_table_names_file_row_and_column(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3,x\n"))
    frame = read_table(path, ("a", "b"))
    with pytest.raises(DataError, match=r"table\.csv\.gz: row 3: 'b' is 'x', not a number"):
        numbers(frame, path, "a", "b")
    with pytest.raises(DataError, match=r"table\.csv\.gz: no column 'c'; it has a, b"):
        read_table(path, ("c",))


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"\x1f\x8b broken"])
def test_an_empty_or_broken_table_is_one_line(tmp_path, content):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"table\.csv\.gz") as raised:
        read_table(path, ("a",))
    assert "\n" not in str(raised.value)
