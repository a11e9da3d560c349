import gzip
from collections import defaultdict

import numpy as np
import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.registry import hardware, hardware_profile
from benchmarks.validation.aiconfigurator_silicon import rows, steady_tpot
from benchmarks.validation.record import recorded
from benchmarks.validation.row import Row, cells_within, compared, mean_within
from benchmarks.validation.table_files import numbers, read_table


def row(published: float, simulated: float, label: str = "a row", **more: object) -> Row:
    return compared("V4", label, published, simulated, **{"bound": 0.10, **more})


def test_a_row_outside_its_bound_fails_the_table() -> None:
    for figures, passed in (((1.05,), True), ((1.05, 1.11), False), ((0.89,), False)):
        assert cells_within([row(1.0, figure) for figure in figures]).passed is passed
    assert not cells_within([row(1.0, 1.0, counted=False)]).passed
    assert not cells_within([]).passed
    assert not mean_within([], 0.07, "").passed
    assert not recorded("V4", "", [row(1.0, 1.0)], []).passed
    found = recorded("V4", "", [row(1.0, 1.0)], [cells_within([row(1.0, 1.2)])])
    assert not found.passed


def test_the_mean_can_fail_where_every_cell_passes() -> None:
    rows = [row(1.0, 1.08), row(1.0, 0.92)]
    assert cells_within(rows).passed
    assert not mean_within(rows, 0.07, "").passed


@pytest.fixture(scope="module")
def by_table(data) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in rows(data):
        found[row.table].append(row)
    return found


def test_five_pairs_of_gpu_and_model_are_within_a_tenth(by_table):
    medians = {
        table: float(np.median([abs(row.error) for row in found if row.counted]))
        for table, found in by_table.items()
        if any(row.counted for row in found)
    }
    assert len(medians) >= 5
    assert max(medians.values()) <= 0.10, medians


def test_rows_that_parameters_were_fitted_on_are_not_counted(by_table):
    for found in by_table.values():
        for row in found:
            assert row.counted == (not row.note)
    at_four = [row for row in by_table["Llama-3.1-70B FP8, H100, vLLM"] if "TP 4" in row.label]
    assert len(at_four) == 15
    assert not any(row.counted for row in at_four)


def test_one_request_alone_takes_a_decode_step_per_token():
    machine = hardware("h100-llama-8b")
    assert steady_tpot(machine, 1, 1000, 100) == machine.verify_seconds(1, 1, 1050, 0, 0)


def test_prompts_of_others_cost_more_the_shorter_the_outputs_are():
    machine = hardware("h200-llama-8b")
    long, short = (steady_tpot(machine, 32, 4000, output) for output in (1000, 100))
    assert short > 1.5 * long


def test_a_batch_does_not_outgrow_the_pool():
    machine = hardware("rtx4090-llama-8b")
    assert steady_tpot(machine, 1000, 4000, 4000) == steady_tpot(machine, 5000, 4000, 4000)


@pytest.mark.parametrize("machine", ["rtx4090-llama-8b", "rtxpro6000-llama-8b"])
def test_measured_operators_and_the_roofline_of_a_machine_agree(machine):
    """Compared without the engine's overhead, of which the two assume different versions."""
    measured, computed = hardware_profile(f"{machine}-measured"), hardware_profile(machine)
    host = {profile.name: profile.overhead for profile in (measured, computed)}
    for batch in (1, 16, 64):
        ours, theirs = (
            Hardware(profile).verify_seconds(batch, batch, 1000 * batch, 0, 0) - host[profile.name]
            for profile in (computed, measured)
        )
        ours -= 4.8e-5 * batch
        assert ours == pytest.approx(theirs, rel=0.15), batch


def test_a_damaged_table_names_file_row_and_column(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3,x\n"))
    frame = read_table(path, ("a", "b"))
    with pytest.raises(DataError, match=r"table\.csv\.gz: row 3: 'b' is 'x', not a number"):
        numbers(frame, path, "a", "b")
    with pytest.raises(DataError, match=r"table\.csv\.gz: no column 'c'; it has a, b"):
        read_table(path, ("c",))
