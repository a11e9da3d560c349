"""Runs in the environment a test made: spawns workers as TensorRT-LLM's MPI session does.

Prints one JSON line per worker. Only TLLM* and TRTLLM* variables are handed on, and they are set
after MPI has started, as when a server's own code sets them.
"""

import json
import os
import sys
from typing import Any


def probe(stand_in: str) -> dict[str, Any]:
    """In the worker: what is switched on there."""
    import os
    import sys

    sys.path.insert(0, stand_in)
    hooked = "_adaptive_spec_trtllm" in sys.modules
    loaded_before = any(name.startswith("adaptive_spec") for name in sys.modules)
    from tensorrt_llm._torch.pyexecutor import py_executor
    from tensorrt_llm._torch.pyexecutor.engine.runners.decoder import runner
    from tensorrt_llm._torch.speculative import utils

    return {
        "pid": os.getpid(),
        "hooked": hooked,
        "loaded_before": loaded_before,
        "loaded": any(name.startswith("adaptive_spec") for name in sys.modules),
        "variable": os.environ.get("TLLM_ADAPTIVE_SPEC"),
        "other": os.environ.get("SOME_OTHER_VARIABLE"),
        "patched": [
            hasattr(py_executor.PyExecutor._handle_dynamic_draft_len, "__wrapped__"),
            hasattr(runner.DecoderRunner._get_graphs_to_capture, "__wrapped__"),
            hasattr(utils.get_draft_len_for_batch_size, "__wrapped__"),
        ],
    }


if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor

    stand_in, requested = sys.argv[1:]
    os.environ.update(json.loads(requested))
    forwarded = {k: v for k, v in os.environ.items() if k.startswith(("TLLM", "TRTLLM"))}
    with MPIPoolExecutor(max_workers=2, path=sys.path, env=forwarded) as pool:
        futures = [pool.submit(probe, stand_in) for _ in range(2)]
        for future in futures:
            print(json.dumps(future.result()))
