"""Builds a scheduler of ADAPTIVE_NGRAM and has SGLang's own graph runner begin for each width.

    python ngram_graphs.py MODEL CONFIG

Prints, as JSON, the batch and tokens that the runner asks each width's attention backend to hold.
Capturing itself needs a GPU: a CPU's backend refuses it right there.
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    """Build, then capture anew as on a GPU, with SGLang's class."""
    model, os.environ["ADAPTIVE_SPEC_CONFIG"] = sys.argv[1:]
    from benchmarks.judge.sglang_scheduler import build_scheduler

    candidates = Path(tempfile.mkdtemp()) / "candidates.json"
    candidates.write_text(json.dumps({"1": {"candidate_steps": [0, 1, 3, 5]}}), encoding="utf-8")
    scheduler = build_scheduler(
        {
            "model_path": model,
            "speculative_algorithm": "ADAPTIVE_NGRAM",
            "speculative_num_draft_tokens": 6,
            "speculative_adaptive_config": str(candidates),
            "speculative_ngram_capacity": 1000,
            "speculative_ngram_max_bfs_breadth": 1,
            "max_total_tokens": 2000,
            "max_running_requests": 8,
        },
        Path(tempfile.mkdtemp()),
        hooked=True,
    )
    worker, asked = scheduler.draft_worker, list[tuple[int, ...]]()
    apart = {id(backend) for backend, _ in worker._runs.values()}
    wrap(worker.model_runner, asked)
    worker.init_cuda_graphs()
    shown = {"widths": sorted(worker._buffers), "backends": len(apart), "asked": sorted(asked)}
    print(json.dumps(shown), flush=True)
    os._exit(0)  # SGLang's threads would wait


def wrap(runner: Any, asked: list[tuple[int, ...]]) -> None:
    """Let a runner's backends note what they are to hold, and end the capture there."""
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

    class Graphs(DecodeCudaGraphRunner):  # type: ignore[misc]
        captured_req_width = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(HeldError):
                super().__init__(*args, **kwargs)

    backend_class = type(runner.attn_backend)

    def hold(self: Any, batch: int, tokens: int, *args: Any, **kwargs: Any) -> None:
        asked.append((batch, tokens))
        raise HeldError

    backend_class.init_cuda_graph_state = hold
    runner.decode_cuda_graph_runner = Graphs.__new__(Graphs)


class HeldError(Exception):
    """The backend of a CPU goes no further."""


if __name__ == "__main__":
    main()
