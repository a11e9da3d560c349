"""Reader of what never changes about a vLLM request, for `RequestTable`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from adaptive_spec.engines.hints import KEYS, MAX_TASKS, NO_CAP, FlatHints, RecentNumbers
from adaptive_spec.engines.request_table import RequestConstants

MAX_KINDS = 128
"""Most numbered combinations of adapter, structured output and task label (LRU)."""


class RequestReader:
    """Reader of a request's constants, which numbers its kind.

    A task label gets another number for each LoRA adapter that it comes with, and for structured
    output: what an adapter says, or a grammar allows, is accepted or not for reasons of its own.

    Args:
        ignored: told the key of every hint that is not used.
        honoured: hints that the server honours.
        named: called with each new number of a task label, and the label.
    """

    def __init__(
        self,
        ignored: Callable[[str], None],
        honoured: Iterable[str] = KEYS,
        named: Callable[[int, str], None] = lambda number, label: None,
    ) -> None:
        self._labels: dict[int, str] = {}
        self._named = named
        self._hints = FlatHints(ignored, honoured, self._labelled)
        self._kinds = RecentNumbers(MAX_KINDS)

    def read(self, request: Any) -> RequestConstants:
        """Return the constants of vLLM's request object."""
        sampling = request.sampling_params
        hints = self._hints.read(sampling.extra_args if sampling is not None else None)
        return RequestConstants(
            hints._replace(task=self._task_of(hints.task, request)),
            temperature=sampling.temperature if sampling is not None else 0.0,
            prompt_tokens=request.num_prompt_tokens,
            # A session may emit more as its prompt grows.
            most_output=NO_CAP if getattr(request, "resumable", False) else request.max_tokens,
        )

    def _labelled(self, number: int, label: str) -> None:
        self._labels[number] = label
        while len(self._labels) > MAX_TASKS:
            del self._labels[next(iter(self._labels))]

    def _task_of(self, label: int, request: Any) -> int:
        lora, structured = request.lora_request, request.use_structured_output
        if lora is None and not structured and label < 0:
            return label
        adapter = None if lora is None else lora.lora_name
        key = (label, adapter, structured)
        known = self._kinds.knows(key)
        number = self._kinds.of(key)
        if not known:
            parts = [self._labels.get(label, "")]
            parts += [f"adapter {adapter}" if adapter is not None else ""]
            parts += ["structured output" if structured else ""]
            self._named(number, ", ".join(filter(None, parts)) or f"task {label}")
        return number
