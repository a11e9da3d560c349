"""A worker extension: what the benchmark reads and sets inside the process of EngineCore.

vLLM mixes the class into its worker (`worker_extension_cls`), and `collective_rpc` calls its
methods in the thread that schedules. With one GPU the worker and the scheduler share a process.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks.gpu.own_code import ADAPTER, SCHEDULER_SIDE, Stopwatch

OURS = (
    *SCHEDULER_SIDE,
    f"{ADAPTER}.draft_signal.worker:CarriesSignals._attach",
    f"{ADAPTER}.draft_signal.v2_tap:V2Tap._keep",
)
"""Functions of adaptive-spec that run on the host in a step and don't call one another."""


class BenchExtension:
    """Methods that vLLM's worker gains; the names begin with `bench_`."""

    vllm_config: Any

    def bench_use_table(self, table: list[list[int]] | None) -> None:
        """Exchange vLLM's schedule of K by batch size; None: Kmax for every batch size."""
        from benchmarks.gpu.table_scheduler import use_table

        use_table(self.vllm_config.instance_id, table)

    def bench_watch(self, on: bool) -> dict[str, list[float]]:
        """Start timing our functions, or stop and return [calls, seconds, CPU seconds] of each."""
        if on:
            self._bench_watch = (ExitStack(), Stopwatch())
            self._bench_watch[0].enter_context(self._bench_watch[1].watching(OURS))
            return {}
        stack, watch = self._bench_watch
        stack.close()
        return {
            name: [calls, watch.seconds[name], watch.processor[name]]
            for name, calls in watch.calls.items()
        }

    def bench_memory(self) -> dict[str, float]:
        """GPU memory in GiB: what PyTorch holds here, what is free and what there is in all."""
        import torch

        if not torch.cuda.is_available():
            return {}
        free, total = torch.cuda.mem_get_info()
        held = torch.cuda.memory_reserved()
        named = {"held": held, "free": free, "total": total}
        return {name: round(number / 2**30, 3) for name, number in named.items()}


def mix_into_cpu_worker() -> None:
    """Mix the extension into vLLM's CPU worker, once per process.

    vLLM's own way refuses a second engine in the process whose worker is a subclass of the first's.
    """
    from vllm.v1.worker.cpu_worker import CPUWorker

    if BenchExtension not in CPUWorker.__bases__:
        CPUWorker.__bases__ = (*CPUWorker.__bases__, BenchExtension)
