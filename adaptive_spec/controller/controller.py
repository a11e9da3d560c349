"""The engine-independent controller: plans before a step, observes after it, never raises.

The controller calls the policy, checks the plan against the engine's limits, and falls back to the
engine's own K (fail-open) when the plan is missing, invalid or late.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from adaptive_spec.audit.auditor import Auditor
from adaptive_spec.audit.blocks import Placed
from adaptive_spec.config import Config
from adaptive_spec.controller.faults import Faults, lateness
from adaptive_spec.controller.kv_guard import limit_to_memory
from adaptive_spec.controller.operator_requests import OperatorRequests
from adaptive_spec.controller.plan_validation import (
    audit_plan,
    engine_plan,
    outcome_fault,
    plan_fault,
    shadow_plan,
    with_engine_k_that_runs,
    with_usable_depth,
)
from adaptive_spec.controller.steps_in_flight import StepInFlight, StepsInFlight, finished_step
from adaptive_spec.errors import AdaptiveSpecError, described
from adaptive_spec.operation.fleet_state import FleetState
from adaptive_spec.operation.output_file import Retry
from adaptive_spec.operation.plain import plain
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.operation.saved_state import SavedState
from adaptive_spec.operation.status import FIGURES, Counters, History, StatusFile, figures_of
from adaptive_spec.operation.trace import StepTrace
from adaptive_spec.operation.why import sentence
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import (
    POLICY_ERRORS,
    Policy,
    configured_policy,
    prepare,
    reads_entropy,
    reads_profile,
    refuse_biased,
)
from adaptive_spec.step import (
    Capability,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_LOG = logging.getLogger(__name__)

_RECENT_SECONDS = 0.25
"""Age up to which a status is said again: making one takes most of a millisecond."""
_BREAK_EVEN_SECONDS = 5.0
"""Longest time that an answer is shown to further readers (seconds)."""


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
        missing: Mapping[str, str] | None = None,
        identity: Mapping[str, str] | None = None,
        counters: Counters | None = None,
        logger: logging.Logger = _LOG,
    ) -> None:
        """Build the controller, load the policy's saved state and compile its functions.

        Where these cannot be compiled, the engine's own K runs.

        Args:
            policy: makes the decisions.
            capability: control options of the engine.
            config: the operator's configuration.
            only_watch: reason to refuse mode ``on``; empty if allowed.
            missing: features that this version of the engine lacks -> what is missing, for the
                status.
            identity: model, drafter, hardware, versions and other facts that the learned state
                belongs to. None: no state is saved.
            counters: what is counted; None: everything.
            logger: logger of the engine.

        Raises PolicyError for a policy that is biased with this engine's drafts.
        """
        refuse_biased(policy, capability)
        self.config = config or Config()
        self.capability = capability
        self.missing = dict(missing or {})
        self.policy = policy
        self.slots = RequestSlots()
        self._counters = Counters(logger) if counters is None else counters
        self.mode = self.config.mode
        self._log = logger
        self._faults = Faults(self.config.fail_open, self._counters, logger)
        self._in_flight = StepsInFlight()
        self._auditor: Auditor | None = None
        self._audit_fault = ""
        self._audit_anew()
        self._operator = OperatorRequests(
            self.config, capability, only_watch, self._counters, logger
        )
        model = (identity or {}).get("model", "")
        self._trace = StepTrace(self.config.trace, self._counters, logger, model)
        self._history = History()
        self._telling = self._figures_to_try()
        self._active = 0.0
        self._status = StatusFile.from_config(self.config.status_file, self._counters, logger)
        self._saved = SavedState.from_config(self.config, identity, self._counters, logger)
        self._saved.take_up(policy, self.config)
        self._fleet = FleetState.from_config(self.config, identity, self._counters, logger)
        self._fleet.take_up(policy, self.config, capability)
        self.decides_since = 0
        """Number of changes of mode, policy or learned state; a plan made before one is void."""
        self._recent: dict[str, tuple[float, int, dict[str, Any]]] = {}
        """Last answers to readers, by name: time, `decides_since`, and the answer."""
        self._now = 0.0
        """Time of the last context (seconds)."""
        try:
            prepare(policy)
        except AdaptiveSpecError as error:
            # Each decision raises it again: under the same name it is logged once.
            self._policy_failed(f"plan raised {described(error)}")

    @classmethod
    def from_config(
        cls,
        config: Config,
        capability: Capability,
        *,
        only_watch: str = "",
        missing: Mapping[str, str] | None = None,
        identity: Mapping[str, str] | None = None,
        logger: logging.Logger = _LOG,
    ) -> Controller:
        """Build the policy that the configuration names, and a controller around it.

        Raises PolicyError or ConfigError: a fault at start-up must reach the user.
        """
        policy = configured_policy(config)
        return cls(
            policy,
            capability,
            config,
            only_watch=only_watch,
            missing=missing,
            identity=identity,
            logger=logger,
        )

    def plan(self, context: StepContext) -> SpecPlan:
        """Return the decision for a step; on any fault the engine's own K, mode ENGINE."""
        try:
            return self._plan(context)
        except Exception as error:  # of our own code: what the policy raises is caught there
            self.fault(f"decision raised {described(error)}")
            return engine_plan(context)

    def _plan(self, context: StepContext) -> SpecPlan:
        self._now = context.now
        breaker = self._faults.breaker
        if self.mode == "off" or (breaker.failures and not breaker.closed(context.now)):
            engine = engine_plan(context)
            return self._decided(StepInFlight(context, engine, context, engine))
        # Reading a thread's CPU time can cost more than a decision, and a simulator needs none.
        limited = math.isfinite(self.config.fail_open.max_decision_ms)
        began, began_cpu = time.perf_counter(), time.thread_time() if limited else 0.0
        seen = context
        try:
            if self.config.memory_guard and _memory_is_limited(context):
                seen = limit_to_memory(context)
                if seen is not context:
                    self._counters.event("steps_cut_for_memory")
            seen = with_engine_k_that_runs(seen)
            _protect(seen)
            wanted = self.policy.plan(seen)
            fault = plan_fault(wanted, seen)
            if not fault:
                wanted = with_usable_depth(wanted, context)
        except POLICY_ERRORS as error:
            fault = f"plan raised {described(error)}"
        if fault:
            wanted = engine_plan(context)
        elapsed = time.perf_counter() - began
        self._counters.decision_seconds(elapsed)
        if not fault and limited:
            fault = lateness(self.config.fail_open, time.thread_time() - began_cpu, elapsed)
        if fault:
            self._policy_failed(fault, context.now)
            return self._decided(StepInFlight(context, engine_plan(context), seen, wanted))
        if breaker.failures:
            breaker.succeeded()
        if self.mode == "shadow":
            config, may_act = self.config, not self._operator.only_watch
            ran = shadow_plan(context, seen, config.shadow_share, config.seed, may_act=may_act)
            return self._decided(StepInFlight(context, ran, seen, wanted))
        ran, placed = self._audited(context, wanted)
        return self._decided(StepInFlight(context, ran, seen, wanted, placed))

    def _audited(self, context: StepContext, wanted: SpecPlan) -> tuple[SpecPlan, Placed | None]:
        """Return the plan that runs, the policy's own but for audit blocks, and its place there."""
        if self._auditor is None:
            return wanted, None
        try:
            if not context.batch_size:
                self._auditor.add_prompts(context.prefill_tokens)
                return wanted, None
            # Requests without a drafter would meet the engine's own K with nothing to verify.
            cold = bool(self.slots.without_drafter) or wanted.mode is Mode.OFF_COLD
            arm, placed = self._auditor.arm(context.batch_size, context.now, cold=cold)
            return (wanted if arm == "policy" else audit_plan(context, arm)), placed
        except Exception as error:
            self._audit_failed(error)
            return wanted, None

    def _audit_anew(self) -> None:
        """Begin to measure: nothing that was measured before holds for what decides now."""
        self._auditor = Auditor(self.config.audit, self.capability, self.config.seed)
        self._audit_fault = ""

    def _audit_failed(self, error: Exception) -> None:
        """Switch the audit off until the policy or its options change; the policy serves on."""
        self._auditor = None
        self._audit_fault = described(error)
        self.fault(f"audit raised {self._audit_fault}")

    def _audit_outcome(self, placed: Placed | None, outcome: StepOutcome) -> None:
        if self._auditor is None:
            return
        try:
            changes = self._auditor.observe(placed, outcome)
        except Exception as error:
            self._audit_failed(error)
            return
        for change in changes:
            self._counters.event(f"audit_{'handed_back' if change.handed_back else 'came_back'}")
            self._log.warning(
                "adaptive_spec: audit: %s, at %s requests per step: %s",
                "measurably slower than the engine's own K"
                if change.handed_back
                else "no longer slower than the engine's own K",
                change.load,
                "the engine's own K runs, and the plugin in blocks only"
                if change.handed_back
                else "the plugin decides again",
            )

    @property
    def counters(self) -> Counters:
        """Counters, with all steps counted so far."""
        self._counters.count()
        return self._counters

    @property
    def reads_entropy(self) -> bool:
        """Return whether the policy or the trace uses the entropy of draft distributions."""
        return self._trace.on or reads_entropy(self.policy)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a finished step; an unplanned step is only counted, an impossible one not."""
        try:
            step = self._in_flight.pop(outcome.step)
            impossible = outcome_fault(outcome, self.capability)
            if impossible:
                self._faults.left_out(f"impossible outcome: {impossible}")
            else:
                self._counters.count_outcome(outcome, None if step is None else step.plan)
                if step is not None:
                    self._learn(step, outcome)
            self._active = time.monotonic()
            if self._history.due(self._active):
                self._history.add(self._active, self.recent_status())
            self._status.refresh(outcome.now, self.recent_status)
            self._saved.refresh(outcome.now, self.policy, self.config)
            self._fleet.refresh(outcome.now, self.policy, self.config)
        except Exception as error:
            self.fault(f"outcome raised {described(error)}")

    def _learn(self, step: StepInFlight, outcome: StepOutcome) -> None:
        finished = finished_step(step.seen, step.to_learn_from, outcome)
        try:
            self.policy.observe(finished)
        except POLICY_ERRORS as error:
            self._policy_failed(f"observe raised {described(error)}", outcome.now)
        self._counters.count_finished(finished)
        self._audit_outcome(step.placed, outcome)
        if self._trace.on:
            ran = finished_step(step.context, step.plan, outcome)
            wanted = finished_step(step.context, step.wanted, outcome).plan
            self._trace.write(ran, wanted, self.why, step.placed)

    def finish(self, request_ids: Iterable[str]) -> None:
        """Release these requests' slots and make the policy forget them."""
        slots = [self.slots.release(request_id) for request_id in request_ids]
        known = np.array([slot for slot in slots if slot is not None], dtype=np.int64)
        if known.size == 0:
            return
        try:
            self._counters.ending(known)
        except Exception as error:
            self.fault(f"end raised {described(error)}")
        try:
            self.policy.forget(known)
        except POLICY_ERRORS as error:
            self._policy_failed(f"forget raised {described(error)}")

    def switch(self, request: SwitchRequest) -> None:
        """Change mode, policy, options or audit between two steps; all of the request or nothing.

        Raises ConfigError or PolicyError, one line, if the request cannot be obeyed.
        """
        config, policy = self._operator.prepare(request, self.config)
        if policy is not None:
            self._saved.save(self._now, self.policy, self.config)
            self._saved.take_up(policy, config)
            self._fleet.save(self._now, self.policy, self.config)
            self._fleet.resume(policy, config)
            self._use(policy)
            self._faults.new_policy(config.fail_open)
        self.config = config
        self.mode = config.mode
        if policy is not None:
            self._audit_anew()
        elif self._auditor is not None:
            self._auditor.configure(config.audit)
        if (asked := request.audit) is not None and asked.minutes and self._auditor is not None:
            self._auditor.prove(asked.changed(config.audit), 60.0 * asked.minutes)
        self.decides_since += 1
        self._operator.obey(config)
        # An idle engine takes no step that would write it.
        self._status.refresh(self._now, self.status, idle=True)

    def poll_control_file(self, now: float) -> None:
        """Check the control file about once a second; never raises.

        For adapters whose controllers decide alone: ranks that must agree would read the file at
        different steps.
        """
        request = self._operator.poll(now)
        if request is None:
            return
        try:
            self.switch(request)
        except Exception as error:
            self._operator.refused(error)

    def start_over(self, why: str) -> None:
        """Discard the learned state because the model has changed. Never raises."""
        try:
            self._use(configured_policy(self.config))
            self._audit_anew()
            self.decides_since += 1
            self._saved.drop()
            self._fleet.drop()
            self._log.info("adaptive_spec: policy %s starts over: %s", self.policy.name, why)
        except Exception as error:
            self._counters.failed("start over")
            self._log.warning(
                "adaptive_spec: policy %s keeps its learned state: %s: %s",
                self.policy.name,
                type(error).__name__,
                error,
            )

    def _use(self, policy: Policy) -> None:
        """Let a policy decide from the next step on."""
        self.policy = policy
        self._in_flight.change_policy()
        self._telling = self._figures_to_try()

    def _figures_to_try(self) -> dict[str, Retry]:
        """Return for each of the `FIGURES` an output that has not failed yet."""
        return {
            name: Retry(f"the policy's figures '{name}'", self._counters.output_failed, self._log)
            for name in FIGURES
        }

    def status(self) -> dict[str, Any]:
        """Return counters and the last decision, as `plain` values."""
        written, counted = time.time(), self._counters.snapshot()
        if self.slots.unreadable:
            counted["events"]["unreadable_requests"] = self.slots.unreadable
        numbers = self._figures("explanation")
        status = {
            "written": written,
            "mode": self.mode,
            "policy": self.policy.name,
            "options": self.config.options,
            "profile_ignored": bool(self.config.profile) and not reads_profile(self.policy),
            "only_watch": self._operator.only_watch,
            "missing_features": self.missing,
            "max_draft_tokens": self.capability.max_draft_tokens,
            "switches": self._operator.obeyed,
            "control_file_error": self._operator.error,
            "benched": self._faults.breaker.benched,
            "live_requests": len(self.slots),
            "requests_without_drafter": len(self.slots.without_drafter),
            "idle_seconds": self._idle_seconds(),
            "why": self._sentence(numbers, written),
            "explanation": numbers,
            "hazards": self._figures("hazard_quality"),
            "estimates": self._estimates(),
            "audit": self._audit_figures(),
            "trace_directory": self.config.trace.directory,
            **counted,
        }
        # Reason and predictions are the policy's, too.
        return dict(plain(status))

    def recent_status(self) -> dict[str, Any]:
        """Return `status` as it was a quarter of a second ago at most, while requests are alive.

        Made anew after a change of the operator's; several readers a second share one.
        """
        return self._recently("status", _RECENT_SECONDS if len(self.slots) else 0.0, self.status)

    def _recently(
        self, name: str, seconds: float, make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return an answer made at most `seconds` ago, and since the operator's last change."""
        made, since, answer = self._recent.get(name, (-math.inf, 0, {}))
        now = time.monotonic()
        if now - made > seconds or since != self.decides_since:
            answer = make()
            self._recent[name] = now, self.decides_since, answer
        return answer

    def history(self) -> dict[str, Any]:
        """Return figures of the last ten minutes with steps, JSON-compatible."""
        return self._history.snapshot()

    def break_even(self) -> dict[str, Any]:
        """Return where drafts break even here, `plain`; empty if the policy cannot say.

        See `adaptive_spec.policies.optional.break_even`. It takes milliseconds of the thread
        that schedules, and any client may ask: the answer is made anew every few seconds.
        """
        return self._recently(
            "break_even",
            _BREAK_EVEN_SECONDS,
            lambda: self._figures("break_even"),
        )

    def _audit_figures(self) -> dict[str, Any]:
        if self._auditor is None:
            return {"fault": self._audit_fault}
        return self._auditor.status()

    def _estimates(self) -> dict[str, Any]:
        """Return the policy's estimates; of the engine's own K alone where no other K runs."""
        estimates = self._figures("estimates")
        if self.mode == "on" or (self.mode == "shadow" and self.config.shadow_share > 0.0):
            return estimates
        own = estimates.get("engine_k")
        return {} if own is None else {"engine_k": own, "planned": own}

    def _figures(self, name: str) -> dict[str, Any]:
        """Return one of the policy's figures; empty, counted and logged once, if it fails."""
        found: dict[str, Any] = {}
        self._telling[name].attempt(
            time.monotonic(), lambda: found.update(figures_of(self.policy, name))
        )
        return found

    def why(self) -> str:
        """Return the reason of the last decision in words and numbers."""
        return self._sentence(self._figures("explanation"), time.time())

    def _sentence(self, numbers: dict[str, Any], written: float) -> str:
        if self.mode == "off":
            return "switched off (mode off): the engine's own K runs"
        last = self._counters.last_plan()
        if last is None:
            return ""
        try:
            text = sentence(last, numbers, written)
        except POLICY_ERRORS:  # figures of other names or types than `why` knows
            text = last.reason
        return str(plain(text))

    def _idle_seconds(self) -> float:
        """Seconds since the last result, where no request is alive; else 0."""
        if len(self.slots) or not self._active:
            return 0.0
        return round(time.monotonic() - self._active, 1)

    def fault(self, what: str) -> None:
        """Count a fault of an adapter's hooks and log it once; the policy stays in use."""
        self._faults.of_hook(what)

    def _policy_failed(self, what: str, now: float | None = None) -> None:
        if self._faults.of_policy(what, self._now if now is None else now, self.policy.name):
            self._saved.distrust()
            self._fleet.distrust()

    def flush(self) -> None:
        """Write status, trace and learned state; for an engine that falls idle. Never raises."""
        self._status.refresh(self._now, self.status, idle=True)
        self._trace.flush(self._now)
        self._saved.refresh(self._now, self.policy, self.config, idle=True)

    def close(self) -> None:
        """Write all output for the last time. Never raises."""
        self._status.refresh(self._now, self.status, idle=True)
        self._status.close()
        self._saved.save(self._now, self.policy, self.config)
        self._fleet.close(self._now, self.policy, self.config)
        self._trace.close(self._now)

    def _decided(self, step: StepInFlight) -> SpecPlan:
        self._counters.count_plan(step.context, step.plan)
        self._in_flight.add(step)
        return step.plan


def _memory_is_limited(context: StepContext) -> bool:
    """Return whether the engine limits a request's drafts, or its pool is below Kmax for each."""
    most = context.batch_size * (1 + context.capability.max_draft_tokens)
    return context.kv_draft_limit is not None or context.kv_free_tokens < most


def _protect(context: StepContext) -> None:
    """Make the arrays that limit a plan read-only: plans are checked against them."""
    for limit in (context.draft_available, context.draft_possible, context.lookup_available):
        if limit is not None:
            limit.setflags(write=False)
