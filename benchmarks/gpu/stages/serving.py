"""A server as people start it, and one answer over HTTP."""

from __future__ import annotations

from benchmarks.gpu import server
from benchmarks.gpu.bench import Bench


def run(bench: Bench) -> None:
    """Run the stage; not on a CPU, where tests of the adapter start servers."""
    if bench.machine.gpu and bench.missing(["server"]):
        bench.use()
        bench.results.add("server", server.answer(bench.machine.models))
        print(bench.results.found["server"], flush=True)
