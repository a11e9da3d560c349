"""The real model itself: 92 MB of the package index, so only in `make test-long`."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the model is converted with torch")
pytest.importorskip("vllm", reason="its answers are compared with vLLM's")

from benchmarks.real_model import build, check


@pytest.mark.engine
@pytest.mark.long
def test_what_the_index_has_is_what_was_measured_and_vllm_answers_like_transformers(
    tmp_path: Path,
) -> None:
    folder = build.build(tmp_path)
    check.check(folder)
    assert check.compare(folder) == []
