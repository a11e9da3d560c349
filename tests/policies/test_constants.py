"""Every number of the policies is in the table of docs/constants.md, with unit and reason."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from policy_constants import MOST, constants, descriptions


def test_each_number_is_described_and_each_description_has_its_number() -> None:
    described = {(file, name) for file, each in descriptions().items() for name in each}
    assert {(each.file, each.name) for each in constants()} == described
    assert all(unit and pays for each in descriptions().values() for unit, pays in each.values())


def test_each_number_says_what_it_means() -> None:
    assert [each for each in constants() if not each.meaning] == []


def test_there_are_no_more_than_the_table_may_have() -> None:
    assert len(constants()) <= MOST
