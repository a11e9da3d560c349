"""Does a process grow? Memory and state of the adapter at moments when nothing is to do."""

import gc
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

MEGABYTE = 1 << 20


class Moment(NamedTuple):
    """One look at an engine without requests.

    Attributes:
        seconds: since the first look; requests: served so far.
        resident_mb: memory of the process.
        ours: objects of our own types. (All objects would say little: pytest keeps every warning,
            vLLM the parent of every request with n > 1 that was aborted.)
        slots: rows that stood for requests at any one time.
        counters: entries in the dictionaries of our counters.
        saved: bytes of the policy's state, as JSON.
        policy: its name.
    """

    seconds: float
    requests: int
    resident_mb: float
    ours: int
    slots: int
    counters: int
    saved: int
    policy: str


class Steadiness:
    """Keeps the moments of one engine.

    Attributes:
        left: what was still held of requests that had ended, a line each time.
    """

    def __init__(self, engine: Any) -> None:
        self.moments: list[Moment] = []
        self.left: list[str] = []
        self._engine = engine
        self._began = time.monotonic()

    def take(self, requests: int) -> None:
        """Look now; no request may be live."""
        engine = self._engine
        controller, driver = engine.controller, engine.scheduler.adaptive_spec
        gc.collect()
        pool = engine.scheduler.kv_cache_manager.block_pool
        held = {
            "slots": len(controller.slots),
            "steps in flight": len(driver._pending),
            "ended requests": len(driver._ended),
            "requests in vLLM": len(engine.scheduler.requests),
            "KV blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
        }
        self.left += [f"after {requests} requests: {n} {name}" for name, n in held.items() if n]
        counters = controller.counters
        tables: list[Any] = [counters.modes, counters.reasons, counters.failures]
        tables += [counters.ignored_hints, counters.verified_k, counters.events]
        tables += [counters._kind_of_reason]
        self.moments.append(
            Moment(
                seconds=time.monotonic() - self._began,
                requests=requests,
                resident_mb=resident_bytes() / MEGABYTE,
                ours=sum(is_ours(thing) for thing in gc.get_objects()),
                slots=controller.slots.capacity,
                counters=sum(map(len, tables)),
                saved=len(msgspec.json.encode(controller.policy.state())),
                policy=controller.policy.name,
            )
        )

    def growth_mb(self) -> float:
        """Memory gained over the second half of the moments, by the line that fits them best."""
        late = self.moments[len(self.moments) // 2 :]
        if len(late) < 3:
            return 0.0
        times = np.array([moment.seconds for moment in late])
        slope, _ = np.polyfit(times, [moment.resident_mb for moment in late], 1)
        return float(slope * (times[-1] - times[0]))

    def summary(self) -> dict[str, Any]:
        """JSON-compatible: every moment, and what grew."""
        return {
            "left": self.left,
            "growth_mb_in_second_half": round(self.growth_mb(), 2),
            "moments": [
                [round(value, 1) if isinstance(value, float) else value for value in moment]
                for moment in self.moments
            ],
            "columns": list(Moment._fields),
        }


def is_ours(thing: Any) -> bool:
    """Is it of a type that adaptive_spec defines?"""
    return str(type(thing).__module__).startswith("adaptive_spec.")


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
