"""Real vLLM servers on one GPU: static K, vLLM's schedule and adaptive-spec, side by side.

`python -m benchmarks.gpu.main --help` says how to run it.
"""
