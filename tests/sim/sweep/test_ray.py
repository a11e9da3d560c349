"""The same sweep on a Ray cluster, a local one of one CPU."""

import importlib.util
import sys

import pytest

from adaptive_spec.errors import ConfigError
from tests.sim.sweep.fake_sweep import call, without_timing, write_sweep


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra [ray]")
@pytest.mark.long
def test_ray_gives_the_same_results_as_processes(finished, tmp_path):
    out = tmp_path / "out"
    result = call(write_sweep(tmp_path), "--output", out, "--ray", "local", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert without_timing(out) == without_timing(finished)


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = call(write_sweep(tmp_path), "--output", tmp_path / "out", "--ray", "local")
    assert isinstance(result.exception, ConfigError)
    assert "pip install 'adaptive-spec[ray]'" in str(result.exception)
