"""The engine loop: continuous batching with speculation, one step at a time.

A step, as in the real engines: the controller plans K_i for the drafts at hand and the depth D of
the next drafting; decoding requests take their tokens and KV blocks (preempting the latest
admitted where the pool is full), what is left of the token budget goes to prompts; the target
verifies, the drafter drafts; accepted drafts and one more token are emitted; the controller learns
of it `delay` steps later. Time is simulated; a seed fixes everything but the cost of deciding.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from adaptive_spec.config import Audit, Config, FailOpen, Trace
from adaptive_spec.controller.controller import Controller
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.status import FaultCounters
from adaptive_spec.policy import Policy, prepare
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.engine.accepted import AcceptedDrafts, modelled_entropy
from adaptive_spec.sim.engine.decode_batch import DecodeBatch
from adaptive_spec.sim.engine.kv_pool import KvAllocator, KvPool, pool_tokens
from adaptive_spec.sim.engine.measurements import Limits, Measurements
from adaptive_spec.sim.engine.options import EngineOptions, capability_of
from adaptive_spec.sim.engine.prompt_queue import PromptQueue, PromptStep, Running
from adaptive_spec.sim.engine.record_choice import RecordChooser
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.result import Result
from adaptive_spec.step import (
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_LOG = logging.getLogger(__name__)
_ENGINE = 2
"""Sets the engine's random numbers apart from those of a load of the same seed."""
_MOST_WAITING = 1_000_000
_ALL_REJECTED = 10_000
"""An endless load of requests that never fit would otherwise be rejected for ever."""


class Engine:
    """A simulated server: a load, what is accepted, a drafter, a machine and a policy.

    Args:
        load: when requests come.
        acceptance: what would be accepted.
        drafter: how it drafts.
        hardware: how long a step takes.
        policy: decides, through the same `Controller` as in a real server.
        options: the engine's settings.
        seed: of everything random in the engine.
        limits: TTFT and TPOT for goodput.
        trace_directory: where to write a step trace, in the format of the adapters.
        counts: the controller's status counts steps and tokens, as in a server; else faults alone.
        shaped: all acceptance data has been through `drafter.shape` already.
        phases: (seconds, what would be accepted from then on), ascending.

    Raises ConfigError if Kmax goes beyond the acceptance data, PolicyError if the policy cannot be
    compiled.
    """

    def __init__(
        self,
        load: Load,
        acceptance: AcceptanceData,
        drafter: Drafter,
        hardware: Hardware,
        policy: Policy,
        options: EngineOptions | None = None,
        *,
        seed: int = 0,
        limits: Limits | None = None,
        trace_directory: str | None = None,
        counts: bool = False,
        shaped: bool = False,
        phases: Sequence[tuple[float, AcceptanceData]] = (),
    ) -> None:
        options = options or EngineOptions()
        depth = min([acceptance.depth, *(each.depth for _, each in phases)])
        most = drafter.most_drafts(depth)
        if options.max_draft_tokens > most:
            raise ConfigError(
                f"Kmax = {options.max_draft_tokens} is more than drafter {drafter.name} can make "
                f"of the acceptance data of {acceptance.name}: at most {most}"
            )
        record_seed, shape_seed, noise_seed = np.random.SeedSequence([seed, _ENGINE]).spawn(3)
        self.options = options
        self.capability = capability_of(options, drafter, hardware)
        # A slow decision on the simulating machine is no fault of the policy.
        config = Config(
            memory_guard=options.memory_guard,
            audit=Audit(share=0.0),  # the figures are the policy's own
            trace=Trace(directory=trace_directory, max_segments=1 << 20),
            fail_open=FailOpen(max_decision_ms=math.inf),
        )
        counters = None if counts else FaultCounters()
        prepare(policy)  # a server would go on without, but it would be another one
        self.controller = Controller(
            policy, self.capability, config, counters=counters, logger=_LOG
        )
        if not shaped:
            random = np.random.default_rng(shape_seed)
            acceptance = drafter.shape(acceptance, random)
            phases = [(at, drafter.shape(each, random)) for at, each in phases]
        self.accepted = AcceptedDrafts(acceptance, options.max_draft_tokens, phases)
        self.batch = DecodeBatch()
        self.prompts = PromptQueue(options.block_tokens)
        self.measurements = Measurements(limits)
        self.now = 0.0
        self._load = load
        self._drafter = drafter
        self._noise = np.random.default_rng(noise_seed)
        self.step_time = StepTime(hardware, drafter, options.ragged_penalty)
        self.pool = KvPool(
            options.kv_tokens or pool_tokens(hardware, drafter), options.block_tokens
        )
        self._records = RecordChooser(acceptance, np.random.default_rng(record_seed))
        self.kv_blocks = KvAllocator(
            options, self.pool, self.batch, self.prompts, self.measurements
        )
        self._extra_tokens = [drafter.extra_tokens(k) for k in range(options.max_draft_tokens + 1)]
        self._tasks: dict[str, int] = {"": -1}
        self._step = 0
        self._was_off = False
        self._unobserved: deque[tuple[StepOutcome, list[str]]] = deque()

    def run(
        self,
        *,
        max_tokens: int | None = None,
        max_seconds: float = math.inf,
        warmup_steps: int = 0,
        warmup_tokens: int = 0,
        warmup_seconds: float = 0.0,
        name: str | None = None,
    ) -> Result:
        """Run until the load has ended, or a number of tokens is emitted, or a time has passed.

        Args:
            max_tokens: emitted tokens after which the run stops; those of the warm-up not counted.
            max_seconds: simulated seconds after which it stops.
            warmup_steps: steps whose figures are left out of the result.
            warmup_tokens: the same in emitted tokens: all policies are then measured on the same
                stretch of a closed loop. Measuring begins when all three are over.
            warmup_seconds: the same in simulated seconds.
            name: of the policy, in the result.

        Raises ConfigError if the run ends within the warm-up, DataError if the load's file turns
        out to be damaged.
        """
        measured = self.measurements
        measured.reset(self.now)
        limit = math.inf if max_tokens is None else max_tokens

        def warm() -> bool:
            ran, emitted = self._step >= warmup_steps, measured.tokens >= warmup_tokens
            return ran and emitted and self.now >= warmup_seconds

        measuring = warm()
        while self.now < max_seconds and (not measuring or measured.tokens < limit):
            if not self.take_in(max_seconds) or self.now >= max_seconds:
                break
            self.step()
            if not measuring and warm():
                measuring = True
                measured.reset(self.now)
        if not measuring:
            raise ConfigError(
                f"the run ended after {self._step:,} steps, {measured.tokens:,} tokens and "
                f"{self.now:.1f} s, within its warm-up: give a longer load or a shorter warm-up"
            )
        while self._unobserved:
            self._observe_oldest()
        self.controller.close()
        failures = sum(self.controller.counters.failures.values())
        return measured.result(name or self.controller.policy.name, self.now, failures)

    def take_in(self, until: float = math.inf) -> bool:
        """Take in what has arrived; wait for it until then (s); False: no more will come."""
        self._admit_arrived()
        while self.now < until and not (
            self.batch.size or self.prompts.running or self.prompts.waiting
        ):
            upcoming = self._load.next_arrival()
            if upcoming == math.inf:
                return False
            self.now = upcoming
            self._admit_arrived()
        return True

    def step(self) -> None:
        """One engine step."""
        if self.now >= self.accepted.next_change:
            self.accepted.reach(self.now)
        context = self._context()
        began = time.perf_counter()
        plan = self.controller.plan(context)
        decision = time.perf_counter() - began
        verify = self.kv_blocks.reserve(plan.verify)
        batch, batch_size = self.batch, self.batch.size
        by_k = np.bincount(verify).tolist()
        drafts = sum(k * count for k, count in enumerate(by_k))
        depth, off, cold = self._depth(plan)
        batch_tokens = batch_size + drafts
        if drafts:
            batch_tokens += batch_size * self._extra_tokens[len(by_k) - 1]
        prompt = self.kv_blocks.run_prompts(batch_tokens, verify)
        ragged = drafts > 0 and by_k[-1] < batch_size
        context_total = batch.context_total
        seconds = self.step_time.verify(
            batch_size,
            batch_tokens,
            context_total,
            prompt.tokens,
            prompt.context_tokens,
            any_draft=drafts > 0,
            ragged=ragged,
        )
        late = None
        if self.options.late_confidence:
            late = self.accepted.confidence(batch, verify)
        from_lookup = plan.from_lookup
        if from_lookup is not None:
            from_lookup = from_lookup[:batch_size]  # the latest may have been preempted
        accepted = self.accepted.count(batch, verify, drafts, from_lookup)
        if self.options.fills_up:
            accepted = self.accepted.limit_to_proposed(batch, accepted)
        emitted = accepted + 1
        drafting = batch_size + len(prompt.ended)
        seconds += self.step_time.draft(drafting, depth, context_total, cold=cold)
        if batch_size:
            if self._was_off and not off:
                seconds += self.options.reentry_seconds
            self._was_off = off
        self.now += seconds

        total = batch_size + (int(np.add.reduce(accepted)) if drafts else 0)
        outcome = StepOutcome(
            step=self._step,
            slots=batch.slots,
            verified=verify,
            accepted=accepted,
            emitted=emitted,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            context_tokens=context_total,
            prefill_tokens=prompt.tokens,
            draft_depth=depth,
            ragged=ragged,
            seconds=self._measured(seconds),
            now=self.now,
            confidence=late,
            lookup_agreed=self.accepted.agreed(batch, emitted),
        )
        ended = self._advance(emitted, total, depth, prompt, cold=cold)
        self._unobserved.append((outcome, ended))
        self._step += 1
        began = time.perf_counter()
        if len(self._unobserved) > self.options.delay:
            self._observe_oldest()
        decision += time.perf_counter() - began
        if batch_size:
            self.measurements.decode(plan.mode, by_k, total - batch_size, context_total, decision)
        self.measurements.step(total + len(prompt.ended))

    # ----------------------------------------------------------------- before a step

    def _admit_arrived(self) -> None:
        """Queue what has arrived by now. Raises ConfigError for a load beyond all bounds."""
        while self._load.next_arrival() <= self.now:
            request = self._load.take_request()
            # It must fit when it is alone, with its last token.
            if request.prompt_tokens + request.output_tokens > self.pool.tokens:
                self._reject(request)
                continue
            self.prompts.arrive(self._records.admit(request))
            if len(self.prompts.waiting) > _MOST_WAITING:
                raise ConfigError(
                    f"more than {_MOST_WAITING:,} requests wait at {self.now:.1f} s: the load is "
                    "far beyond what this hardware can serve; lower its rate"
                )

    def _reject(self, request: Request) -> None:
        measured = self.measurements
        measured.rejected += 1
        if measured.rejected >= _ALL_REJECTED and not measured.tokens:
            raise ConfigError(
                f"no request fits into the KV pool of {self.pool.tokens:,} tokens, the last had "
                f"{request.prompt_tokens:,} + {request.output_tokens:,}: give more --kv-tokens or "
                "another hardware"
            )
        self._load.finished(request, self.now)

    def _context(self) -> StepContext:
        """Return the context of the step that begins now."""
        options, batch, prompts = self.options, self.batch, self.prompts
        accepted, pool = self.accepted, self.pool
        batch_size, kmax = batch.size, options.max_draft_tokens
        # One token is kept for the bonus position, so that a chain never emits too much.
        room = possible = np.minimum(batch.left, kmax)
        if options.drafts_past_end:  # nobody trims them, as in an engine without this package
            room = possible = np.full(batch_size, kmax)
        if accepted.is_tree:  # K counts nodes, most of which are never emitted
            possible = np.where(possible > 0, kmax, 0)
        available = np.minimum(possible, batch.drafted)
        if batch.any_stale:  # the drafter has lost these requests, for good
            possible = np.where(batch.stale, 0, possible)
            available = np.where(batch.stale, 0, available)
        if not options.fills_up:
            available = accepted.limit_to_proposed(batch, available)
        copied, match = accepted.looked_up(batch, room)  # needs no state of the drafter
        used = batch.context_total + batch_size * (pool.block_tokens - 1)
        used += prompts.blocks * pool.block_tokens
        confidence = None
        if not options.late_confidence:
            confidence = accepted.confidence(batch, batch.drafted)
        return StepContext(
            step=self._step,
            capability=self.capability,
            request_ids=batch.ids,
            slots=batch.slots,
            context_tokens=batch.context,
            draft_available=available,
            draft_possible=possible,
            engine_k=self.capability.uniform_values[-1] if options.level is Level.UNIFORM else kmax,
            tpot_target=batch.tpot_target,
            task=batch.task,
            temperature=batch.temperature,
            confidence=confidence,
            entropy=None if confidence is None else modelled_entropy(confidence),
            waiting=len(prompts.waiting),
            prefill_tokens=prompts.expected_tokens(options.max_batch_tokens - batch_size),
            kv_free_tokens=max(pool.tokens - used, 0),
            kv_total_tokens=pool.tokens,
            lookup_available=copied,
            lookup_match=match,
            now=self.now,
        )

    def _depth(self, plan: SpecPlan) -> tuple[int, bool, bool]:
        """Draft depth, whether speculation is off, and whether even the drafter's warm pass is."""
        if plan.mode is Mode.OFF_COLD:
            return 0, True, True
        off = plan.mode is Mode.OFF_WARM
        # A fixed depth is drafted whatever is planned, off too if a pass keeps the drafter in step.
        if not self.capability.steers_depth and (not off or self.capability.off_pass):
            return self.options.max_draft_tokens, off, False
        return plan.draft_depth, off, False

    # ------------------------------------------------------------------ after a step

    def _advance(
        self,
        emitted: IntArray,
        total: int,
        depth: int,
        prompt: PromptStep,
        *,
        cold: bool,
    ) -> list[str]:
        """Count the tokens, let requests end and begin to decode; ids of those that ended."""
        batch = self.batch
        batch.advance(emitted, total, depth)
        if cold and self._drafter.stale_after_cold:
            batch.spoil()
            for member in (*self.prompts.running, *prompt.ended):
                member.stale = True
        ended: list[str] = []
        if batch.size and int(np.minimum.reduce(batch.left)) < 0:
            for member in batch.leave(batch.left < 0):
                self._finish(member, ended)
        joining: list[Running] = []
        for member in prompt.ended:
            member.emitted += 1
            if math.isnan(member.first_token):
                member.first_token = self.now
                self.measurements.first_token(member)
            if member.emitted >= member.request.output_tokens:
                self._finish(member, ended)
            else:
                member.slot = self.controller.slots.assign(member.request.id)
                joining.append(member)
        if joining:
            for label in (member.request.task for member in joining):  # in order: numbers repeat
                if label not in self._tasks:
                    self._tasks[label] = len(self._tasks) - 1
                    self.controller.counters.name_task(self._tasks[label], label)
            tasks = [self._tasks[member.request.task] for member in joining]
            batch.join(joining, tasks, depth)
        return ended

    def _finish(self, member: Running, ended: list[str]) -> None:
        ended.append(member.request.id)
        self.measurements.ended(member, self.now)
        self._load.finished(member.request, self.now)

    def _observe_oldest(self) -> None:
        outcome, ended = self._unobserved.popleft()
        if outcome.batch_size:
            self.controller.observe(outcome)
        if ended:
            self.controller.finish(ended)

    def _measured(self, seconds: float) -> float:
        if not self.options.timing_noise:
            return seconds
        return seconds * math.exp(self.options.timing_noise * float(self._noise.standard_normal()))
