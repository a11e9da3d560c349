from collections import defaultdict

import numpy as np
import pytest

from adaptive_spec.sim.hardware.registry import hardware
from benchmarks.validation.aiconfigurator_silicon import steady_tpot
from benchmarks.validation.no_speculation import rows
from benchmarks.validation.row import Row


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
