"""Widths of NGRAM on SGLang's own graph runner, as far as it runs on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving import HERE, ROOT, environment, write_config

pytestmark = [pytest.mark.engine, pytest.mark.long]  # adapter/test_ngram_worker.py has widths


def test_sglangs_graph_runner_captures_each_width_with_its_own_backend(
    models: dict[str, Path], tmp_path: Path
) -> None:
    config = write_config(tmp_path)
    variables = environment(config=config)
    variables["PYTHONPATH"] += os.pathsep + str(ROOT)  # for the judge's scheduler
    done = subprocess.run(
        [sys.executable, str(HERE / "ngram_graphs.py"), str(models["target"]), str(config)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout.splitlines()[-1])
    widths = [1, 2, 4, 6]
    assert shown["widths"] == widths
    assert shown["backends"] == len(widths)
    # The width of the launch has been captured before, by SGLang.
    batch = shown["asked"][0][0]
    assert shown["asked"] == [[batch, batch * width] for width in widths[:-1]]
