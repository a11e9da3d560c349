r"""What adaptive-spec adds to a vLLM step: the adapter alone, and reading the drafter's confidence.

    python benchmarks/vllm_overhead.py --cycles 6 --k 2 --draft-sampling greedy   # a look
    python benchmarks/vllm_overhead.py --results benchmarks/results   # final: on an idle machine

in the environment that vLLM is installed in. How it measures: benchmarks/vllm_overhead/__init__.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    # In place of this folder, where `vllm_overhead` would be found under a second name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.vllm_overhead.main import main

if __name__ == "__main__":
    sys.exit(main())
