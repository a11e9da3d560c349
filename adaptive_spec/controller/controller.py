"""What an adapter talks to: plan before a step, observe after it, never an exception.

The controller asks the policy, checks the answer against the engine's limits, and falls back to
the engine's own K (fail-open) when the answer is missing, wrong or late. It knows no engine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.config import Config
from adaptive_spec.controller.breaker import Breaker
from adaptive_spec.controller.kv_guard import limit_to_memory
from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.errors import AdaptiveSpecError, ConfigError
from adaptive_spec.operation.control_file import ControlFile
from adaptive_spec.operation.run_time_switch import SwitchRequest, changed_config, dotted_names
from adaptive_spec.operation.saved_state import SavedState
from adaptive_spec.operation.status import Counters, StatusFile, hazards_of
from adaptive_spec.operation.trace import StepTrace
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import (
    Policy,
    configured_policy,
    only_installed,
    reads_entropy,
    refuse_biased,
    stopper,
)
from adaptive_spec.step import (
    Capability,
    DraftPass,
    DraftVerdict,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_LOG = logging.getLogger(__name__)


class Controller:
    """Drives one policy for one engine replica.

    Use from one thread, the one that schedules. `plan`, `observe` and `finish` never raise.
    """

    def __init__(
        self,
        policy: Policy,
        capability: Capability,
        config: Config | None = None,
        *,
        only_watch: str = "",
        identity: Mapping[str, str] | None = None,
        logger: logging.Logger = _LOG,
    ) -> None:
        """Build it, and let the policy go on from what an earlier run has saved.

        Args:
            policy: decides.
            capability: of the engine.
            config: as the operator gave it.
            only_watch: why mode ``on`` is refused here; empty if it is not.
            identity: what is learned here belongs to: model, drafter, hardware, versions and so
                on. None: nothing is kept for later.
            logger: of the engine.

        Raises PolicyError for a policy that is biased with this engine's drafts.
        """
        refuse_biased(policy, capability)
        self.config = config or Config()
        self._start_config = self.config
        self._only_watch = only_watch
        self.capability = capability
        self.policy = policy
        self.slots = RequestSlots()
        self.counters = Counters()
        self.mode = self.config.mode
        self._log = logger
        self._breaker = Breaker(self.config.fail_open)
        self._trace = StepTrace.from_config(self.config.trace, logger)
        self._status = StatusFile.from_config(self.config.status_file, logger)
        self._saved = SavedState.from_config(self.config, identity, logger)
        self._saved.take_up(policy, self.config)
        name = self.config.control_file
        self._control = ControlFile(Path(name)) if name else None
        self._control_error = ""
        self._switches = 0
        self._said: set[str] = set()
        self._now = 0.0
        """Of the last context."""
        self._passes_seconds = 0.0
        """Spent on verdicts about the drafts at hand; part of the decision for their step."""
        self._stopped_live = False
        """The drafts at hand are what the policy has left of them while they were made."""

    @classmethod
    def from_config(
        cls,
        config: Config,
        capability: Capability,
        *,
        only_watch: str = "",
        identity: Mapping[str, str] | None = None,
        logger: logging.Logger = _LOG,
    ) -> Controller:
        """Build the policy the configuration names, and a controller around it.

        Raises PolicyError or ConfigError; this is start-up, where the user is told.
        """
        from adaptive_spec.kernels import kernel_in_use, select_kernel

        select_kernel(config.kernel)
        policy = configured_policy(config)
        # From here on nothing may compile: a policy switched to while serving takes what is loaded.
        select_kernel(kernel_in_use())
        return cls(
            policy,
            capability,
            config,
            only_watch=only_watch,
            identity=identity,
            logger=logger,
        )

    def plan(self, context: StepContext) -> SpecPlan:
        """The decision for a step. On any fault it is the engine's own K, mode ENGINE."""
        self._now = context.now
        engine = engine_plan(context)
        if self.mode == "off":
            return self._record(context, engine)
        if not self._breaker.closed(context.now):
            return self._record(context, engine)
        began = time.perf_counter()
        try:
            limited = limit_to_memory(context) if self._guards_memory(context) else context
            if limited is not context:
                self.counters.event("steps_cut_for_memory")
            plan = self.policy.plan(limited)
            fault = plan_fault(plan, limited)
            if self._stopped_live and not fault:
                # What a live stop has left is verified, whoever plans now: how much was left
                # tells what the drafts showed, and taking some back by that would bias the output.
                plan = msgspec.structs.replace(plan, verify=limited.draft_available)
        except Exception as error:
            plan, fault = engine, f"plan raised {type(error).__name__}: {error}"
        elapsed = time.perf_counter() - began
        self.counters.decision_seconds(elapsed + self._passes_seconds)
        self._passes_seconds = 0.0
        if not fault and elapsed * 1e3 > self.config.fail_open.max_decision_ms:
            fault = f"plan took: {elapsed * 1e3:.1f} ms"
        if fault:
            self._failed(fault, context.now)
            return self._record(context, engine)
        self._breaker.succeeded()
        if self.mode == "shadow":
            return self._record(context, engine_plan(context, mode=Mode.SHADOW), wanted=plan)
        return self._record(context, plan)

    def _guards_memory(self, context: StepContext) -> bool:
        """An even share of the pool depends on what others have kept.

        Where drafts were stopped live, how many others have kept tells what their drafts showed:
        only limits of the requests' own may cut then.
        """
        shared = context.kv_draft_limit is None
        return self.config.memory_guard and not (shared and self._stopped_live)

    @property
    def reads_entropy(self) -> bool:
        """The policy or the trace uses the entropy of draft distributions."""
        return self._trace.on or reads_entropy(self.policy)

    @property
    def stops_drafting(self) -> bool:
        """The policy wants to see each pass of the drafter."""
        if self.mode != "on" or self._breaker.benched:
            return False
        return stopper(self.policy) is not None

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Keep this draft position, go on to the next? On any fault all is drafted."""
        whole = DraftVerdict(draft.drafting, draft.drafting)
        ask = stopper(self.policy)
        if ask is None:
            return whole
        began = time.perf_counter()
        try:
            verdict = ask(draft)
            for answer in (verdict.admitted, verdict.drafting):
                if answer.dtype != np.bool_ or answer.shape != draft.drafting.shape:
                    raise TypeError(f"a verdict is {answer.dtype} {answer.shape}, not bool [B]")
            admitted = draft.drafting & verdict.admitted
            going = admitted & verdict.drafting
            if draft.position == 0:
                self._stopped_live = False
            self._stopped_live |= bool((going != draft.drafting).any())
            return DraftVerdict(admitted, going)
        except Exception as error:
            self._failed(f"after_draft_pass raised {type(error).__name__}: {error}", self._now)
            return whole
        finally:
            self._passes_seconds += time.perf_counter() - began

    def drafted_whole(self) -> None:
        """The drafts at hand were made without asking after each pass: a plan may trim them."""
        self._stopped_live = False

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a finished step."""
        self.counters.outcome(outcome)
        try:
            self.policy.observe(outcome)
        except Exception as error:
            self._failed(f"observe raised {type(error).__name__}: {error}", outcome.now)
        self._trace.outcome(outcome)
        self._status.refresh(outcome.now, self.status)
        self._saved.refresh(outcome.now, self.policy, self.config)

    def finish(self, request_ids: Iterable[str]) -> None:
        """These requests have ended; nothing about them is kept."""
        slots = [self.slots.release(request_id) for request_id in request_ids]
        known = np.array([slot for slot in slots if slot is not None], dtype=np.int64)
        if known.size == 0:
            return
        try:
            self.policy.forget(known)
        except Exception as error:
            self._failed(f"forget raised {type(error).__name__}: {error}", self._now)

    def switch(self, request: SwitchRequest) -> None:
        """Change mode, policy or options, between two steps; all of it or nothing.

        Raises ConfigError or PolicyError, one line, if it cannot be; nothing has changed then.
        """
        config = changed_config(self.config, request, self._start_config)
        if config.mode == "on" and self._only_watch:
            raise ConfigError(f"mode `on` is refused, not tested with: {self._only_watch}")
        if request.policy is not None or request.options is not None:
            start = self._start_config
            with only_installed(but=frozenset(dotted_names([start.policy, start.options]))):
                policy = configured_policy(config)
            refuse_biased(policy, self.capability)
            self._saved.save(self.policy, self.config)
            self._saved.take_up(policy, config)
            self.policy = policy
            self._breaker = Breaker(config.fail_open)
        self.config = config
        self.mode = config.mode
        self._switches += 1
        self._control_error = ""
        self._log.info("adaptive_spec: switched to mode=%s policy=%s", config.mode, config.policy)

    def poll_control_file(self, now: float) -> None:
        """Look at the control file, about once a second; never raises.

        For adapters whose controllers decide alone: ranks that must agree would read it at
        different steps.
        """
        if self._control is None:
            return
        try:
            request = self._control.poll(now)
            if request is not None:
                self.switch(request)
        except AdaptiveSpecError as error:
            self._control_error = str(error)
            self._log.warning("adaptive_spec: %s; nothing is changed", error)
        except Exception as error:
            self._control_error = f"control file: {type(error).__name__}: {error}"
            self.counters.failed("control file")
            self._log.warning("adaptive_spec: %s; nothing is changed", self._control_error)

    def start_over(self, why: str) -> None:
        """Forget what was learned: the model has changed. Never raises."""
        try:
            self.policy = configured_policy(self.config)
            self._saved.drop()
            self._log.info("adaptive_spec: policy %s starts over: %s", self.policy.name, why)
        except Exception as error:
            self.counters.failed("start over")
            self._log.warning(
                "adaptive_spec: policy %s goes on with what it has learned: %s: %s",
                self.policy.name,
                type(error).__name__,
                error,
            )

    def status(self) -> dict[str, Any]:
        """Counters and the last decision, JSON-compatible."""
        return {
            "mode": self.mode,
            "policy": self.policy.name,
            "options": self.config.options,
            "only_watch": self._only_watch,
            "max_draft_tokens": self.capability.max_draft_tokens,
            "switches": self._switches,
            "control_file_error": self._control_error,
            "benched": self._breaker.benched,
            "live_requests": len(self.slots),
            "hazards": hazards_of(self.policy),
            **self.counters.snapshot(),
        }

    def fault(self, what: str, now: float | None = None) -> None:
        """An adapter reports a fault of its own hooks: counted, said once."""
        self._failed(what, self._now if now is None else now)

    def flush(self) -> None:
        """Write what is buffered, and go on."""
        self._status.write(self.status())
        self._trace.flush()

    def close(self) -> None:
        """Write what is buffered, for the last time."""
        self._status.write(self.status())
        self._saved.save(self.policy, self.config)
        self._trace.close()

    def _record(
        self, context: StepContext, plan: SpecPlan, wanted: SpecPlan | None = None
    ) -> SpecPlan:
        self.counters.plan(context, plan)
        self._trace.plan(context, plan, wanted)
        return plan

    def _failed(self, fault: str, now: float) -> None:
        kind = self.counters.failed(fault)
        benched = self._breaker.failed(now)
        if kind not in self._said:
            self._said.add(kind)
            self._log.warning("adaptive_spec: %s; the engine's own K is used", fault)
        if benched and "benched" not in self._said:
            self._said.add("benched")
            seconds = self.config.fail_open.bench_seconds
            self._log.warning(
                "adaptive_spec: policy %s failed repeatedly and is benched for %.0f s at a time",
                self.policy.name,
                seconds,
            )


def engine_plan(context: StepContext, mode: Mode = Mode.ENGINE) -> SpecPlan:
    """The engine's own K as a plan."""
    return SpecPlan(
        step=context.step,
        verify=np.minimum(context.draft_available, context.engine_k),
        draft_depth=context.engine_k,
        mode=mode,
        reason="engine's own K",
    )
