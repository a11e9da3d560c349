"""Test only: every process of a server runs model runner V2 as on a GPU with varlen graphs.

`plugin_folder` makes what the processes need: a `sitecustomize` that lets Triton interpret, since
vLLM asks for Triton when it is imported, and a plugin of vLLM's that plants the rest.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

NAME = "v2_ranks"
FOLDER = "V2_RANKS_FOLDER"
"""Environment variable: where each worker writes by which graphs its steps ran."""


def plugin_folder(folder: Path) -> Path:
    """Write both; the folder belongs on PYTHONPATH, `triton_interpreter.ENVIRONMENT` is set."""
    place = folder / f"{NAME}-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n")
    (place / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{NAME} = {NAME}:install\n")
    (folder / "sitecustomize.py").write_text(
        "import triton_interpreter\ntriton_interpreter.prepare()\n"
    )
    return folder


def install() -> None:
    """Plant varlen graphs and the collectives of experts, and write down what is dispatched."""
    import cpu_collectives
    import v2_varlen
    from vllm.v1.worker.cpu_worker import CPUWorker

    from adaptive_spec.adapters.vllm import graph_ladder

    if hasattr(CPUWorker, "_writes_dispatched"):
        return
    cpu_collectives.install()
    v2_varlen.plant()
    # As it is: ranks that exchange tokens have draft loops for Kmax only.
    graph_ladder.can_capture = lambda _: False
    execute = CPUWorker.execute_model

    def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = execute(self, *args, **kwargs)
        path = Path(os.environ[FOLDER]) / f"dispatched-{os.getpid()}.json"
        path.write_text(json.dumps(v2_varlen.dispatched()))
        return done

    CPUWorker.execute_model = execute_model
    CPUWorker._writes_dispatched = True
