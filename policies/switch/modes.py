"""Mode machine: when speculation stops, how far it stops, and when it comes back.

Modes, from the most to the least expensive while nothing is accepted:

* ON: the planner decides and explores.
* OFF_WARM: K = 0. A drafter with a state still runs the pass that keeps the state current, so
  that coming back costs nothing.
* OFF_COLD: K = 0 and no drafter pass. Requests alive at that time have holes in their draft KV
  and stay at K = 0 to their end, so coming back takes until enough of them have been replaced.
  A drafter without a state (n-gram, suffix; `Capability.off_pass` is False) loses nothing by it.

**Stopping.** Nobody knows beforehand how long a bad time lasts. So each step down is taken once the
seconds lost by not taking it (`LostSeconds`) reach the cost of coming back from there (ski rental).
Coming back from OFF_COLD costs a probe and the gain missed until the probe is made and requests are
replaced. Staking the whole cost would lose at most twice the best; only a part is staked, because a
drafter that has just failed rarely revives within seconds. While the last lifetimes of requests add
up to a gain, nothing is switched, unless acceptance was seen to change (`acceptance_changed`).
Losses of one lifetime do not stop speculation either while the planner's mean gain is above 3 %.

OFF_COLD strands the requests alive: should the load fall, they decode to their end without drafts
where drafts would pay. So a share of what they would lose were no others to come
(`policies.switch.drafter_state`) is staked as well, the drafter is never stopped while the load
falls, and never before the step times say beyond doubt that no K pays.

**Coming back.** While the drafter keeps its state current, speculation comes back as soon as the
planner finds a plan that pays, or the step times at this load do not rule out that a K does.
Otherwise probes are made at the times of `probes`. A probe lasts as long as its test needs: a
handful of first drafts if the answer is clear, 256 near break-even. From OFF_COLD it starts with a
step that runs prompts, because only requests that begin after the drafter does can be drafted for;
until then it costs nothing. An engine that compares unverified drafts with what was emitted (n-gram
while OFF) reports them through `scored`.

A policy calls, once per step that decodes:

    mode = machine.step(forecast, ...)          # before planning
    if machine.probing: verify 1 draft for `machine.probe_requests` requests, draft 1 deep
    machine.add_planned_step(seconds, tokens)   # predictions of its plan, prompts left out
    machine.emitted(surplus)                    # when outcomes arrive: tokens beyond prediction
    machine.scored(samples, accepted)           # first drafts of the probe only
    machine.lengths.emitted(slots, tokens)      # the same outcomes
    machine.ended(slots)                        # when requests end

and `prompts_only` in a step without decoding requests. The drafter's pass must run if
`machine.probing`, or if the mode is not OFF_COLD.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from adaptive_spec.policies.switch.break_even import Prospect, SpeculationForecast
from adaptive_spec.policies.switch.drafter_state import OutputLengths, stranded_seconds
from adaptive_spec.policies.switch.probes import ProbeSchedule, ProbeTest
from adaptive_spec.step import Capability, IntArray, Mode

_REMEMBERED = 256.0


class RequestLifetime:
    """Mean time a request decodes, estimated from the requests that end."""

    def __init__(self) -> None:
        self.batch_size = 0
        self._exposure = 0.0
        # Half a request: the first estimate is twice the time that all have lived together.
        self._ended = 0.5

    def passed(self, batch_size: int, seconds: float) -> None:
        """Count a step of this many requests that took these seconds."""
        self.batch_size = batch_size
        self._exposure += batch_size * seconds

    def ended(self, requests: int) -> None:
        """Count requests that have ended."""
        self._ended += requests
        if self._ended > _REMEMBERED:
            # The older half counts half.
            self._ended *= 0.5
            self._exposure *= 0.5

    @property
    def seconds(self) -> float:
        """Mean seconds a request decodes."""
        return self._exposure / self._ended


_MARGIN = 0.005
"""Relative gain that predicted step times cannot tell from none."""
_CREDIT_LIFETIMES = 4.0
"""How long gains and losses are remembered, in lifetimes of a request."""


class LostSeconds:
    """Seconds that speculation loses or gains against true K = 0, step by step.

    A step that takes T seconds and emits n tokens loses T - n T_off / B, T_off the seconds of a
    step at K = 0 without a drafter pass. Losses never sum to less than zero, so that gains pay for
    losses but not for those to come. Where requests differ, a few bad ones at the same time (with
    one client: a single one) are no reason to stop: `credit` remembers what was gained before.

    Attributes:
        cold: seconds lost by not being in OFF_COLD.
        warm: seconds lost by not being in OFF_WARM.
        credit: seconds gained minus seconds lost in the last few lifetimes of a request.
    """

    def __init__(self) -> None:
        self.cold = self.warm = self.credit = 0.0

    def add_step(
        self,
        lost: float,
        *,
        seconds: float,
        warm_seconds: float,
        lifetime_seconds: float,
    ) -> None:
        """Take up a step that speculated, or that kept the drafter warm.

        Args:
            lost: seconds lost against OFF_COLD, the margin included.
            seconds: duration of the step.
            warm_seconds: what OFF_WARM would have lost for the tokens of this step.
            lifetime_seconds: mean lifetime of a request.
        """
        memory = max(_CREDIT_LIFETIMES * lifetime_seconds, seconds)
        self.credit -= lost + self.credit * seconds / memory
        self.cold = max(self.cold + lost, 0.0)
        self.warm = max(self.warm + lost - _MARGIN * seconds - warm_seconds, 0.0)

    def clear(self) -> None:
        """Forget losses; the credit stays."""
        self.cold = self.warm = 0.0


def with_margin(seconds: float, tokens: float, seconds_per_token: float) -> float:
    """Return the seconds that a step loses against K = 0 at these seconds per token."""
    return (1.0 + _MARGIN) * seconds - tokens * seconds_per_token


_PROBE_REQUESTS = 16
"""Requests that verify a draft in each step of a probe."""
_REFRESH_STEPS = 32
"""Steps between evaluations of the forecast's prospect."""
_ADVANTAGE_STEPS, _SAMPLES_FOR_ADVANTAGE = 32, 128
_LEAST_ADVANTAGE = 0.03
"""Mean advantage of plans that ends a probe early and forbids stopping."""
_ASKING_COSTS = 0.01
"""Share of a step that an unused look-up is charged with."""
# Speculation comes back after half of an interval, or of a request's lifetime, on average.
_MISSED_OF_INTERVAL, _MISSED_OF_LIFETIME = 0.015, 0.06
"""Staked shares of the gain missed, per probe interval and per lifetime."""
_STRANDED = 0.3
"""Staked share of the seconds that the requests alive would lose, were no others to come."""
_STAKE_STEPS, _LOOK_STEPS = 8, 4
"""Steps between evaluations of that stake, and of whether a K may pay."""
_FALLING, _FALLING_STEPS = 3, 32
"""The load falls where the batch has at least 3 requests fewer than in one of the last 32 steps."""
_IDLE, _IDLE_STEPS = 1.02, 256
"""A step of ON with fewer tokens than 1.02 of those of K = 0 drafts for nothing. After 256 such
steps in a row the mode becomes OFF_WARM, which probes."""
_LEAST_TIMED = 4
"""Steps with drafts to be timed at a load before the drafter is stopped at it."""
_BEYOND_DOUBT = 2.0
"""Standard errors by which no speculation is better than any K where the drafter is stopped."""
_WORTH_COMING_BACK = 0.02
"""Least gain for returning without a probe, where no state is restored."""
_PATIENCE_STEPS = 20.0
"""Cost at which a probe ends that could verify no draft (steps at K = 0)."""
_BRIEF_SECONDS = 30.0
"""An ON spell shorter than this does not start the probe schedule afresh."""


UNTIMED = "no drafts timed at this load"
"""What keeps the drafter until a K was timed at this load."""


class ModeMachine:
    """ON, OFF_WARM and OFF_COLD, and the probes while off.

    Args:
        capability: which modes the engine has.
    """

    def __init__(self, capability: Capability) -> None:
        self._has_state = capability.off_pass
        self._goes_cold = capability.cold_off
        self._passes_fixed = not capability.steers_depth and capability.level > 0
        self._can_stop = 0 in capability.uniform_values or capability.level > 0
        self._lifetime = RequestLifetime()
        self._schedule = ProbeSchedule()
        self._test = ProbeTest(free=not self._has_state)
        self._prospect = Prospect(0.3, 0.1, 0.4)
        self.mode = Mode.ON
        self.probing = False
        self.switches = 0
        self.back_by_probe = False
        """A probe, not the planner, ended the last OFF spell."""
        self._steps = 0
        self._now = 0.0
        self._on_since = -math.inf
        self._off_seconds = self._warm_seconds = 0.0
        self._lost = LostSeconds()
        self._advantage = 0.0
        self._spent = 0.0
        self.lengths = OutputLengths()
        self._stake, self._next_stake = 0.0, 0
        self._batch_sizes: deque[int] = deque(maxlen=_FALLING_STEPS)
        self._gain_of_none = 0.0, math.inf
        self._kept = ""
        self._idle_steps = 0

    @property
    def wants_a_trial(self) -> bool:
        """Whether a K must be timed at this load before the drafter may be stopped."""
        return self._kept == UNTIMED

    @property
    def cold(self) -> bool:
        """No drafter pass in the coming step."""
        return self.mode is Mode.OFF_COLD and not self.probing

    @property
    def plan_mode(self) -> Mode:
        """Mode that the plan of the coming step states: a probe runs the drafter."""
        return Mode.OFF_WARM if self.probing else self.mode

    @property
    def probe_requests(self) -> int:
        """Requests that should verify a draft in this step; 0 unless probing."""
        return _PROBE_REQUESTS if self.probing else 0

    def step(
        self,
        forecast: SpeculationForecast,
        *,
        batch_size: int,
        prompts: bool,
        now: float,
        ready: bool = True,
    ) -> Mode:
        """Return the mode of the coming step.

        Args:
            forecast: of the step.
            batch_size: B >= 1 decoding requests.
            prompts: prompts run in this step.
            now: monotonic seconds.
            ready: step times and acceptance are known well enough to stop because of them.
        """
        self._off_seconds, self._warm_seconds = forecast.off_seconds, forecast.warm_seconds
        self._lifetime.passed(batch_size, self._off_seconds)
        self._now = now
        self._steps += 1
        self._batch_sizes.append(batch_size)
        if not self._schedule.probes:
            # Until one has been made: as if it took a dozen steps at a tenth of their time.
            self._schedule.probe_cost = self._off_seconds
        if not self._can_stop:
            return self.mode
        if self.mode is Mode.ON:
            self._advantage += (forecast.advantage - self._advantage) / _ADVANTAGE_STEPS
            if ready:
                self._consider_stopping(forecast, batch_size)
            else:
                self._lost.clear()
                self._lost.credit = 0.0
        elif self.probing:
            self._conclude(forecast)
        elif self._nothing_to_restore and (
            forecast.advantage > _WORTH_COMING_BACK or self._may_pay(forecast)
        ):
            self._switch_on(by_probe=False)
        else:
            self._watch(forecast, batch_size)
            self._consider_going_cold(forecast)
            self._consider_probing(prompts=prompts)
        return self.mode

    def prompts_only(self, *, now: float) -> Mode:
        """Return the mode of a step in which prompts run and nothing decodes."""
        self._now = now
        if self.mode is not Mode.ON and not self.probing:
            self._consider_probing(prompts=True)
        return self.mode

    def add_planned_step(self, *, seconds: float, tokens: float) -> None:
        """Add what this step's plan is predicted to lose; seconds without prompts, and tokens."""
        batch_size = self._lifetime.batch_size
        if not batch_size:
            return
        lost = with_margin(seconds, tokens, self._off_seconds / batch_size)
        if self.probing:
            self._spent += max(lost, 0.0)
            return
        self._idle_steps = self._idle_steps + 1 if tokens < _IDLE * batch_size else 0
        if not self._has_state and tokens < 1.001 * batch_size:
            # The cost of such a drafter shows only once the engine no longer calls it.
            lost = max(lost, _ASKING_COSTS * self._off_seconds)
        if self.mode is Mode.ON or self.mode is Mode.OFF_WARM:
            self._lost.add_step(
                lost,
                seconds=seconds,
                warm_seconds=tokens * self._warm_seconds / batch_size,
                lifetime_seconds=self._lifetime.seconds,
            )

    @property
    def next_probe(self) -> float:
        """Monotonic seconds at which the next probe is due, while off."""
        return self._schedule.next_probe

    @property
    def request_seconds(self) -> float:
        """Mean seconds that a request decodes."""
        return self._lifetime.seconds

    @property
    def heeds_surplus(self) -> bool:
        """`emitted` has an effect."""
        return self.mode is Mode.ON and not self._has_state

    def emitted(self, surplus: float) -> None:
        """Take up how many tokens per request a step emitted beyond its prediction.

        Long matches come in bursts that the prediction of a typical step lacks; the credit of a
        drafter that copies text counts them as they were measured.
        """
        if self.heeds_surplus:
            self._lost.credit += surplus * self._off_seconds

    def scored(self, *, samples: int, accepted: int) -> None:
        """Take up first drafts that were verified, or compared with what was emitted."""
        if self.probing:
            self._test.add(samples, accepted)

    def stop_after_cold_trial(self, forecast: SpeculationForecast, batch_size: int) -> None:
        """Stop speculation: timed steps without the drafter show that it does not pay."""
        if self.mode is Mode.ON and self._goes_cold:
            self._switch_off(Mode.OFF_COLD, forecast, batch_size)

    def acceptance_changed(self) -> None:
        """Drop the credit: past gains tell nothing about what comes."""
        self._lost.credit = min(self._lost.credit, 0.0)
        self._advantage = min(self._advantage, 0.0)

    def costs_changed(self) -> None:
        """Speculate until step times are known again: whether it pays is open."""
        self.acceptance_changed()
        if self.mode is not Mode.ON:
            self.probing = False
            self._switch_on(by_probe=False)

    def ended(self, slots: IntArray) -> None:
        """Take up that the requests in these slots have ended."""
        self._lifetime.ended(len(slots))
        self.lengths.ended(slots)

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers that speculation is switched by, JSON-compatible; seconds.

        ``lost_cold``, ``lost_warm``: lost by not being in OFF_COLD or OFF_WARM; ``credit``: gained
        in the last lifetimes of a request; ``cost_of_coming_back``: losses from which speculation
        stops; ``stake``: further losses from which the drafter stops, for the requests alive;
        ``gain_of_none``: ln goodput of no speculation over the best K >= 1, and its standard error,
        once that was asked; ``kept``: what keeps the drafter running though its losses have reached
        the cost of coming back (``credit``, ``expected gain``, ``load falls``, ``stake``,
        ``step times in doubt``, `UNTIMED`), or empty; ``probe_cost``; ``expected_gain``: of
        speculation over none when it comes back.
        """
        gain, error = self._gain_of_none
        return {
            "lost_cold": round(self._lost.cold, 4),
            "lost_warm": round(self._lost.warm, 4),
            "credit": round(self._lost.credit, 4),
            "cost_of_coming_back": round(self._cost_of_coming_back(), 4),
            "stake": round(self._stake, 4),
            "gain_of_none": None if math.isinf(error) else [round(gain, 3), round(error, 3)],
            "kept": self._kept,
            "probe_cost": round(self._schedule.probe_cost, 4),
            "expected_gain": round(self._prospect.gain, 4),
        }

    # ------------------------------------------------------------------ stopping

    def _consider_stopping(self, forecast: SpeculationForecast, batch_size: int) -> None:
        lost, least = self._lost, self._schedule.probe_cost
        self._kept = ""
        idle = self._has_state and self._idle_steps >= _IDLE_STEPS and self._advantage <= 0.0
        if lost.cold < least and lost.warm < least and not idle:
            return  # less is lost than one probe would cost
        if self._steps % _REFRESH_STEPS == 0:
            self._prospect = forecast.prospect()
        going_warm = self._has_state and lost.warm >= least
        if self._passes_fixed and not self._goes_cold:
            # The cost of passes that always run shows only once they are left out.
            going_warm = going_warm or lost.cold >= least
        going_cold = lost.cold >= self._cost_of_coming_back()
        expected = self._has_state and self._advantage > _LEAST_ADVANTAGE
        if (going_warm or going_cold) and (lost.credit > 0.0 or expected):
            # Requests and passages differ: better ones were here before and may come again.
            self._kept = "credit" if lost.credit > 0.0 else "expected gain"
            lost.clear()
        elif going_cold and self._goes_cold and self._may_strand(forecast):
            self._switch_off(Mode.OFF_COLD, forecast, batch_size)
        elif going_warm or idle or (going_cold and not self._has_state):
            # No request loses its drafter by this, so no further proof is needed.
            self._switch_off(Mode.OFF_WARM, forecast, batch_size)

    def _consider_going_cold(self, forecast: SpeculationForecast) -> None:
        warm = self.mode is Mode.OFF_WARM and self._goes_cold and self._has_state
        if warm and self._lost.cold >= self._cost_of_coming_back() and self._may_strand(forecast):
            self.mode = Mode.OFF_COLD
            self.switches += 1

    def _may_strand(self, forecast: SpeculationForecast) -> bool:
        """Whether the drafter may stop, by which the requests alive lose it to their end."""
        if not self._has_state:
            return True
        # The requests that remain would decode without drafts at a load where drafts may pay.
        if max(self._batch_sizes) - self._batch_sizes[-1] >= _FALLING:
            self._kept = "load falls"
            return False
        if self._steps >= self._next_stake:
            self._stake = _STRANDED * stranded_seconds(forecast, self.lengths)
            self._next_stake = self._steps + _STAKE_STEPS
        staked = self._cost_of_coming_back() + self._stake
        if self._lost.cold < staked:
            self._kept = "stake"
            return False
        if forecast.timed_drafts < _LEAST_TIMED:
            self._kept = UNTIMED
            return False
        # Doubt must not cost more than what it guards: each stake that is lost halves the proof.
        doubt = self._in_doubt(forecast, _BEYOND_DOUBT * staked / self._lost.cold)
        self._kept = "step times in doubt" if doubt else ""
        return not doubt

    def _in_doubt(self, forecast: SpeculationForecast, errors: float = 1.0) -> bool:
        """Whether the gain of no drafter over the best K is within this many standard errors."""
        gain, error = self._gain_of_none = forecast.log_gain_of_none()
        return gain <= errors * error

    def _may_pay(self, forecast: SpeculationForecast) -> bool:
        """Whether the step times at this load leave it possible that a K pays."""
        if self.mode is not Mode.OFF_WARM or not self._has_state or self._steps % _LOOK_STEPS:
            return False
        if self._kept == UNTIMED:
            return True  # only while ON can a K be timed
        gain, error = self._gain_of_none = forecast.log_gain_of_none()
        return error - gain > _WORTH_COMING_BACK

    def _cost_of_coming_back(self) -> float:
        """Return the cost of a return from OFF_COLD (s): a probe and the gain missed until it."""
        missed = _MISSED_OF_INTERVAL * self._schedule.by_law(0.0, self._prospect.gain)
        if self._has_state:
            missed += _MISSED_OF_LIFETIME * self._lifetime.seconds
        return self._schedule.probe_cost + self._prospect.gain * missed

    def _switch_off(self, mode: Mode, forecast: SpeculationForecast, batch_size: int) -> None:
        brief = self._now - self._on_since <= _BRIEF_SECONDS
        if not brief:
            self._test.reset()
        self._prospect = forecast.prospect()
        self._schedule.begin(self._now, batch_size, self._prospect.gain, afresh=not brief)
        self._advantage = self._lost.warm = 0.0
        self._idle_steps = 0
        self.mode = mode
        self.switches += 1

    # --------------------------------------------------------------- coming back

    @property
    def _nothing_to_restore(self) -> bool:
        return self.mode is Mode.OFF_WARM or not self._has_state

    def _watch(self, forecast: SpeculationForecast, batch_size: int) -> None:
        """Bring the next probe forward where the load has changed or a gain became possible."""
        another = self._schedule.another_load(batch_size)
        if self._steps % _REFRESH_STEPS and not another:
            return
        was_hopeless = self._prospect.hopeless
        self._prospect = forecast.prospect()
        if another or (was_hopeless and not self._prospect.hopeless):
            self._schedule.bring_forward(self._now, batch_size)

    def _consider_probing(self, *, prompts: bool) -> None:
        if self.cold and self._has_state and not prompts:
            return
        if self._schedule.due(self._now):
            self.probing = True
            self._spent = 0.0
            self._test.begin(self._prospect)

    def _conclude(self, forecast: SpeculationForecast) -> None:
        if not self._prospect.hopeless or self._test.samples >= _PROBE_REQUESTS:
            # The load may have changed, and the probe measures step times as well.
            self._prospect = forecast.prospect()
            self._test.expect(self._prospect)
        pays = self._test.verdict()
        if pays is None:
            self._advantage += (forecast.advantage - self._advantage) / _ADVANTAGE_STEPS
            enough = self._test.pooled_samples >= _SAMPLES_FOR_ADVANTAGE
            if self._advantage > _LEAST_ADVANTAGE and enough:
                # Requests differ: the planner finds enough that pay.
                pays = True
            elif self._test.samples or self._spent < _PATIENCE_STEPS * self._off_seconds:
                return
        self.probing = False
        cost = max(self._spent, 0.25 * self._off_seconds)
        self._schedule.probed(self._now, cost, self._prospect.gain)
        if pays:
            self._switch_on(by_probe=True)
        elif self.mode is Mode.OFF_COLD and self._has_state:
            stake = _STRANDED * stranded_seconds(forecast, self.lengths)
            if stake > self._schedule.probe_cost and self._in_doubt(forecast):
                # The probe has given a drafter to requests that are worth more than it has cost: to
                # stop the drafter now needs the proof that it needed at first.
                self.mode = Mode.OFF_WARM
                self.switches += 1
                self._lost.clear()

    def _switch_on(self, *, by_probe: bool) -> None:
        self.back_by_probe = by_probe
        self.mode = Mode.ON
        self.switches += 1
        self._on_since = self._now
        self._idle_steps = 0
        self._lost.clear()
