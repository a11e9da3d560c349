"""Step traces of a fleet, made small: Parquet of the steps, and of each replica a summary.

    DST/model=MODEL/replica=REPLICA/hour=HOUR/SEGMENT.parquet
    DST/model=MODEL/replica=REPLICA/trace.summary.npz

Each process of a server is a replica here. An hour is counted from its first step, and a segment
belongs to that of its own first step. Parquet has the columns of `adaptive_spec.operation.trace`
but for `capability` and `task_names`, which the summary knows. `advise` reads the summaries.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import open_lines
from adaptive_spec.errors import DataError
from adaptive_spec.operation.segments import Segment
from adaptive_spec.sim.advice.summary import SUFFIX, Summarizer, save
from adaptive_spec.sim.step_trace import RecordedTrace

MOST_ROWS, MOST_STEPS = 1 << 14, 1 << 12
"""Steps of requests, and step times, that a summary keeps: 64 of them are one whole prediction."""
_HOUR = 3600.0
_UNNAMED = "unnamed"


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome for one replica.

    Attributes:
        replica: folder and name of the process.
        model: that the trace names.
        steps: read.
        read_bytes, written_bytes: of segments, and of all that was made of them.
        error: one line; "": all is well.
    """

    replica: str
    model: str = ""
    steps: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    error: str = ""


class Compaction(msgspec.Struct, frozen=True):
    """Task: the segments of one process, and where its folders go.

    Attributes:
        segments: path and size of each, in order.
        replica: name that no other process of the fleet has.
        target: folder DST.
        seed: of the draws of a summary.
    """

    segments: list[tuple[str, int]]
    replica: str
    target: str
    seed: int = 0

    def execute(self) -> Compacted:
        """Write the replica's files anew."""
        try:
            return self._written()
        except Exception as error:  # the other replicas go on
            return self.failed(" ".join(str(error).split())[:300] or type(error).__name__)

    def failed(self, error: str) -> Compacted:
        """Return the outcome of a task that came to nothing."""
        return Compacted(replica=self.replica, error=error)

    def _written(self) -> Compacted:
        segments = tuple(Segment(Path(path), size) for path, size in self.segments)
        trace = RecordedTrace(self.replica, segments)
        summarizer, model, first, steps = Summarizer(MOST_ROWS, MOST_STEPS), "", 0.0, 0
        hours: dict[Path, int] = {}
        for path, step in trace.steps_by_segment():
            first = step.now if not steps else first
            hours.setdefault(path, int((step.now - first) // _HOUR))
            model = step.model or model
            summarizer.add(step)
            steps += 1
        folder = Path(self.target, f"model={plain_name(model)}", f"replica={self.replica}")
        folder.mkdir(parents=True, exist_ok=True)
        written = 0
        for segment in segments:
            if segment.path in hours:
                place = folder / f"hour={hours[segment.path]:05d}"
                written += write_parquet(segment, place)
        summary = folder / f"trace{SUFFIX}"
        made = summarizer.summary(self.replica, seed=self.seed)
        save(replace(made, steps=replace(made.steps, sources=(self.replica,))), summary)
        return Compacted(
            replica=self.replica,
            model=model,
            steps=steps,
            read_bytes=sum(segment.size for segment in segments),
            written_bytes=written + summary.stat().st_size,
        )


def compactions(trace: RecordedTrace, target: Path, *, seed: int = 0) -> list[Compaction]:
    """Return a task for each process that recorded."""
    common = os.path.commonpath([str(Path(each).parent) for each in trace.processes])
    made = []
    for process in trace.processes:
        name = "~".join(Path(process).relative_to(common).parts)
        segments = [(str(path), size) for path, size in trace.only([process]).segments]
        made.append(Compaction(segments, plain_name(name), str(target), seed))
    return made


def plain_name(text: str) -> str:
    """Return a name for a folder."""
    return re.sub(r"[^A-Za-z0-9._~-]+", "_", text).strip("._") or _UNNAMED


def write_parquet(segment: Segment, folder: Path) -> int:
    """Write a segment's steps; return the bytes of the file. Raises DataError, or OSError."""
    import polars

    with open_lines(segment.path) as lines:
        content = lines.read()
    content = content[: content.rfind(b"\n") + 1]  # a killed process leaves a cut line
    schema: dict[str, Any] = {name: getattr(polars, kind) for name, kind in _SCALARS.items()}
    schema |= {name: polars.List(getattr(polars, kind)) for name, kind in _LISTS.items()}
    schema |= {name: polars.List(polars.List(polars.Float32)) for name in _SIGNALS}
    try:
        frame = polars.read_ndjson(io.BytesIO(content), schema=schema)
    except polars.exceptions.PolarsError as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{segment.path}: cannot be packed: {said}") from error
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{segment.path.name.partition('.')[0]}.parquet"
    frame.write_parquet(path, compression="zstd")
    return path.stat().st_size


_SCALARS = {
    **dict.fromkeys(("step", "waiting", "kv_free_tokens", "context_tokens"), "Int64"),
    **dict.fromkeys(("depth", "batch_size", "batch_tokens", "prefill_tokens"), "Int32"),
    **dict.fromkeys(("now", "seconds", "shared_seconds"), "Float64"),
    **dict.fromkeys(("predicted_seconds", "predicted_tokens"), "Float64"),
    **dict.fromkeys(("mode", "reason", "why", "model"), "String"),
    **dict.fromkeys(("engine_k", "wanted_depth"), "Int32"),
    "kv_total_tokens": "Int64",
    "measures": "Boolean",
}
_LISTS = {
    "ids": "String",
    **dict.fromkeys(("k", "accepted", "emitted", "available", "possible"), "Int32"),
    **dict.fromkeys(("planned_k", "wanted_k", "task"), "Int32"),
    "contexts": "Int64",
    **dict.fromkeys(("propensity", "temperature", "tpot_target"), "Float64"),
    "opted_out": "Boolean",
}
_SIGNALS = "confidence", "entropy", "late_confidence", "late_entropy"
