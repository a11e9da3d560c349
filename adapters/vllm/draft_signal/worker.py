"""vLLM's workers, which also bring along what the drafter showed, and copy looked-up drafts.

Named in `ParallelConfig.worker_cls` by the configuration gate, and only if the configuration asks
for confidence or a second source. Every method calls vLLM's own exactly once; a fault of ours is
said once and ends the reading, or the copying.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any

from adaptive_spec.adapters.vllm import KEY
from adaptive_spec.adapters.vllm.copied_drafts import MESSAGE as COPIED
from adaptive_spec.adapters.vllm.copied_drafts import ONE_HOT, Copies, copies_for
from adaptive_spec.adapters.vllm.draft_signal.lookup_tap import LookupTap
from adaptive_spec.adapters.vllm.draft_signal.model_tap import ModelTap
from adaptive_spec.adapters.vllm.draft_signal.v2_tap import V2Tap, shows_certainty
from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE, WANTED, DraftSignals, Wanted
from adaptive_spec.config import Config

_LOG = logging.getLogger("vllm.adaptive_spec")

WORKERS = {
    "vllm.v1.worker.cpu_worker.CPUWorker": f"{__name__}.SignalCPUWorker",
    "vllm.v1.worker.gpu_worker.Worker": f"{__name__}.SignalGPUWorker",
}
"""vLLM's workers, and ours in their place."""


class CarriesSignals:
    """Mixed in before a worker of vLLM."""

    model_runner: Any
    vllm_config: Any
    _adaptive_spec_tap: ModelTap | LookupTap | V2Tap | None = None
    _adaptive_spec_copies: Copies | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Load, then watch the drafter."""
        engine: Any = super()
        loaded = engine.load_model(*args, **kwargs)
        config: Config | None = getattr(self.vllm_config.scheduler_config, KEY, None)
        try:
            if config is None or config.confidence:
                self._adaptive_spec_tap = watch_drafter(self.model_runner)
        except Exception as error:
            _LOG.warning("adaptive_spec: confidence is not read: %s", error)
        try:
            if config is not None and config.second_source is not None:
                self._adaptive_spec_copies = copies_for(self.model_runner)
        except Exception as error:  # the scheduler sees that nothing is copied, or is not told
            _LOG.warning("adaptive_spec: drafts are not copied: %s", error)
        return loaded

    def execute_model(self, scheduler_output: Any) -> Any:
        """Read the coming round or not, as the scheduler has said; copy drafts."""
        engine: Any = super()
        tap, copies = self._adaptive_spec_tap, self._adaptive_spec_copies
        if tap is not None:
            tap.wanted = getattr(scheduler_output, WANTED, Wanted.ENTROPY_TOO)
        if copies is not None:
            copies.before(getattr(scheduler_output, COPIED, None))
        return self._with_signals(engine.execute_model(scheduler_output))

    def sample_tokens(self, *args: Any, **kwargs: Any) -> Any:
        """Send the signals with the step's results, under asynchronous scheduling."""
        engine: Any = super()
        return self._with_signals(engine.sample_tokens(*args, **kwargs))

    def take_draft_token_ids(self) -> Any:
        """Send the signals with the draft tokens, under synchronous scheduling."""
        engine: Any = super()
        drafts = engine.take_draft_token_ids()
        tap = self._adaptive_spec_tap
        if tap is not None:
            self._attach(drafts, tap.take_signals())
        if drafts is not None and self._adaptive_spec_copies is not None:
            setattr(drafts, ONE_HOT, self._adaptive_spec_copies.works)
        return drafts

    def _with_signals(self, output: Any) -> Any:
        tap = self._adaptive_spec_tap
        if tap is None or not hasattr(output, "get_output"):
            return output
        # V2's results leave before its drafts are made.
        read = tap.take_verified() if isinstance(tap, V2Tap) else tap.take_signals()
        own = output.get_output

        def get_output() -> Any:
            vars(output).pop("get_output", None)  # breaks the reference cycle
            results = own()
            self._attach(results, read)
            return results

        output.get_output = get_output
        return output

    def _attach(self, carrier: Any, read: Callable[[], DraftSignals | None] | None) -> None:
        """Put values on an object of vLLM's that is sent to the scheduler."""
        try:
            signals = read() if read is not None else None
            if signals is not None and carrier is not None:
                setattr(carrier, ATTRIBUTE, signals)
        except Exception as error:
            self._adaptive_spec_tap = None
            _LOG.warning(
                "adaptive_spec: confidence is not sent any more: %s: %s",
                type(error).__name__,
                error,
            )


def watch_drafter(runner: Any) -> ModelTap | LookupTap | V2Tap | None:
    """Watch a model runner's drafter; None if it shows nothing or another rank is asked."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    # Model runner V1 calls it drafter, V2 speculator.
    drafter = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
    if drafter is None or not (get_pp_group().is_last_rank and get_tp_group().is_first_rank):
        return None
    if hasattr(drafter, "_sample_draft_tokens"):
        return ModelTap(runner)
    if hasattr(drafter, "suffix_cache") or hasattr(drafter, "max_n"):
        # Of V2's n-gram drafts the scheduler finds out itself: see `text_matches`.
        return LookupTap(runner) if hasattr(runner, "drafter") else None
    if shows_certainty(drafter):
        return V2Tap(runner)
    _LOG.info("adaptive_spec: %s shows no confidence", type(drafter).__name__)
    return None


def __getattr__(name: str) -> Any:
    """Make `SignalCPUWorker` or `SignalGPUWorker` when vLLM looks it up."""
    for theirs, ours in WORKERS.items():
        if ours.rpartition(".")[2] == name:
            module, _, base = theirs.rpartition(".")
            made = type(name, (CarriesSignals, getattr(importlib.import_module(module), base)), {})
            made.__module__ = __name__
            globals()[name] = made
            return made
    raise AttributeError(name)
