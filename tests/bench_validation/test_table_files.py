"""What is wrong with a public table is one line that names file, row and column."""

import gzip

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.validation.table_files import numbers, read_table


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
