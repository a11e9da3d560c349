"""When to stop speculating, how far, and when to look again.

Modes, from the dearest to the cheapest while nothing is accepted:

* ON: the planner decides and explores.
* OFF_WARM: K = 0; a drafter with a state still runs the pass that keeps it in step, so coming
  back costs nothing.
* OFF_COLD: K = 0 and no drafter pass. Requests alive then have holes in their draft KV and stay
  at K = 0 to their end, so coming back takes until enough of them have been replaced. A drafter
  without a state (n-gram, suffix; `Capability.off_pass` is False) loses nothing, and OFF_WARM
  makes no sense for it.

**Going down.** How long a bad time lasts isn't known in advance, so each step down is taken once
the seconds lost by not taking it reach the cost of coming back from there (ski rental). Losses are
counted against true K = 0, predicted seconds minus predicted tokens over its goodput, and gains are
taken off again, never below zero. From OFF_COLD, coming back costs a probe and the gain missed
until it is made and requests are replaced. Staking all of that would lose at most twice the best;
only a part is staked, because a drafter that has just failed rarely revives within seconds, and
going cold early is what keeps a dead drafter from costing anything.

Where requests differ, a few bad ones at the same time are no reason to stop: as long as gains and
losses of the last lifetimes together are a gain, nothing is switched, unless acceptance was seen
to change (`acceptance_changed`).

**Coming back.** Where the drafter has kept in step, speculation is back as soon as the planner
finds a plan that pays. Otherwise, while OFF, a probe is made after

    tau = sqrt(2 C (b + t_off) / (a g)),    a = 1, b = 60 s,

with C the seconds a probe costs, t_off the time OFF so far and g the relative gain speculation
would bring at this load if the drafter worked well (`break_even.prospect`): within a few
hundredths of the best fixed interval for dead times from minutes to hours, where doubling the
interval after each failure recovers late. Besides, all probes together may take at most
`overhead` of the time, as long as that keeps the interval under 20 s. A load half or twice as
large, or a change reported from outside, makes a probe due and starts t_off afresh. Where not
even a good drafter would pay, as far as step times are known, probes are rare and measure those.

A probe lasts as long as the test in `sprt` asks: a handful of first drafts if the answer
is clear, 256 near break-even. From OFF_COLD it starts with a step that runs prompts, because only
requests that begin after the drafter does can be drafted for; until then it costs nothing.
Afterwards it costs the drafter's pass over the whole batch, for as long as it takes the fresh
requests to bring the samples. An engine that compares drafts it has not verified with what was
emitted (n-gram while OFF) reports them through `scored` just the same.

How a policy uses it, once per step that decodes:

    mode = machine.step(...)                    # before planning
    if machine.probing: verify 1 draft for `machine.probe_requests` requests, draft 1 deep
    machine.ran(seconds, tokens)                # predictions for the plan it made, without prompts
    machine.scored(samples, accepted)           # when outcomes arrive: first drafts only
    machine.ended(requests)                     # when requests end

and `prompts_only` in a step without decoding requests. If `machine.probing`, or the mode is not
OFF_COLD, the drafter's pass must run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from adaptive_spec.planning.on_off.break_even import Prospect
from adaptive_spec.planning.on_off.request_lifetime import Turnover
from adaptive_spec.planning.on_off.sprt import ProbeTest
from adaptive_spec.step import Capability, Mode

_SLOWEST_PROBE_SECONDS = 600.0
_BUDGET_INTERVAL_SECONDS = 20.0
_PROBE_REQUESTS = 16
_REFRESH_STEPS = 32
_ADVANTAGE_STEPS, _SAMPLES_FOR_ADVANTAGE = 32, 128
_MARGIN = 0.005
"""A gain that predictions of step times cannot tell from none."""
_ASKING_COSTS = 0.01
"""Share of a step charged for a drafter without a state that nothing is taken from."""
_MISSED_OF_INTERVAL, _MISSED_OF_LIFETIME = 0.015, 0.06
"""What is staked of the gain missed when it comes back: the mean waits are half of either."""
_WORTH_COMING_BACK = 0.02
"""Gain for which speculation comes back without a probe, where nothing has to be restored."""
_CREDIT_LIFETIMES = 4.0
"""How long gains and losses are remembered, in lifetimes of a request."""
_PATIENCE_STEPS = 20.0
_BRIEF_SECONDS = 30.0


class ModeMachine:
    """ON, OFF in its two depths, and the probes in between.

    Args:
        capability: which modes the engine has.
        settling_seconds: b of the probe law.
        overhead: share of the time that probes may take.
        most_samples: first drafts that end a probe near break-even.
        fixed_interval: seconds between probes, instead of the law; to see what the law is worth.
    """

    def __init__(
        self,
        capability: Capability,
        *,
        settling_seconds: float = 60.0,
        overhead: float = 0.002,
        most_samples: int = 256,
        fixed_interval: float | None = None,
    ) -> None:
        self._has_state = capability.off_pass
        self._goes_cold = capability.cold_off
        self._passes_fixed = not capability.steers_depth and capability.level > 0
        self._can_stop = 0 in capability.uniform_values or capability.level > 0
        self._settling, self._overhead = settling_seconds, overhead
        self._fixed_interval = fixed_interval
        self._turnover = Turnover()
        self._advantage = 0.0
        self._test = ProbeTest(most_samples)
        self.mode = Mode.ON
        self.probing = False
        self.switches = 0
        self.probes = 0
        self.back_by_probe = False
        """It last came back because a probe had found that it pays; else the planner had."""
        self._prospect = Prospect(0.3, 0.1, 0.4)
        self._steps = 0
        self._now = 0.0
        self._lost_warm = self._lost_cold = 0.0
        self._off_seconds = self._warm_seconds = 0.0
        self._on_trial, self._paid = True, 0.0
        self._credit = 0.0
        self._probe_cost = self._spent = 0.0
        self._off_since = self._on_since = -math.inf
        self._last_probe = self._next_probe = 0.0
        self._load = 0

    @property
    def cold(self) -> bool:
        """No drafter pass in the coming step."""
        return self.mode is Mode.OFF_COLD and not self.probing

    @property
    def plan_mode(self) -> Mode:
        """What a plan says of the coming step: a probe runs the drafter."""
        return Mode.OFF_WARM if self.probing else self.mode

    @property
    def probe_requests(self) -> int:
        """How many requests should verify a draft in this step; 0 unless probing."""
        return _PROBE_REQUESTS if self.probing else 0

    def step(
        self,
        *,
        batch_size: int,
        off_seconds: float,
        warm_seconds: float,
        prospect: Callable[[], Prospect],
        prompts: bool,
        now: float,
        advantage: float = 0.0,
        ready: bool = True,
        changed: bool = False,
    ) -> Mode:
        """The mode of the coming step.

        Args:
            batch_size: B >= 1 decoding requests.
            off_seconds: duration of the step at K = 0 without a drafter pass, prompts left out.
            warm_seconds: what the pass that keeps the drafter in step adds; 0 without a state.
            prospect: what speculation could bring at this load; asked now and then only.
            prompts: prompts run in this step.
            now: monotonic seconds.
            advantage: goodput of the plan the planner would choose, over that of K = 0 without a
                drafter pass, minus 1.
            ready: step times and acceptance have been measured well enough to stop on them.
            changed: something was seen to change (load mix, acceptance).
        """
        self._turnover.passed(batch_size, off_seconds)
        self._off_seconds, self._warm_seconds = off_seconds, warm_seconds
        self._now = now
        self._steps += 1
        if not self.probes:
            # Until one has been made: some dozen steps at a tenth of their time.
            self._probe_cost = off_seconds
        if not self._can_stop:
            return self.mode
        if self.mode is Mode.ON:
            if ready:
                self._consider_stopping(prospect, batch_size)
            else:
                self._lost_cold = self._lost_warm = self._credit = 0.0
            return self.mode
        if self.probing:
            self._conclude(advantage, prospect)
            return self.mode
        nothing_to_restore = self.mode is Mode.OFF_WARM or not self._has_state
        if nothing_to_restore and advantage > _WORTH_COMING_BACK:
            self.back_by_probe = False
            self._switch_on()
            return self.mode
        self._watch(batch_size, prospect, changed=changed)
        self._consider_going_cold()
        self._consider_probing(prompts=prompts)
        return self.mode

    def prompts_only(self, *, now: float) -> Mode:
        """The same for a step in which prompts run and nothing decodes."""
        self._now = now
        if self.mode is not Mode.ON and not self.probing:
            self._consider_probing(prompts=True)
        return self.mode

    def ran(self, *, seconds: float, tokens: float) -> None:
        """Predictions for the plan of this step: its duration without prompts, tokens emitted."""
        if not self._turnover.batch_size:
            return
        per_token = self._off_seconds / self._turnover.batch_size
        lost = (1.0 + _MARGIN) * seconds - tokens * per_token
        if self.probing:
            self._spent += max(lost, 0.0)
            return
        if not self._has_state and tokens < 1.001 * self._turnover.batch_size:
            # What asking such a drafter costs shows only once it is no longer asked.
            lost = max(lost, _ASKING_COSTS * self._off_seconds)
        if self.mode is Mode.ON or self.mode is Mode.OFF_WARM:
            memory = _CREDIT_LIFETIMES * self._turnover.lifetime_seconds
            self._credit -= lost + self._credit * min(seconds / max(memory, seconds), 1.0)
            self._lost_cold = max(self._lost_cold + lost, 0.0)
            self._paid -= lost
            if self._paid > self._probe_cost:
                self._on_trial = False
            warm = tokens * self._warm_seconds / self._turnover.batch_size
            lost -= _MARGIN * seconds + warm
            self._lost_warm = max(self._lost_warm + lost, 0.0)

    def scored(self, *, samples: int, accepted: int) -> None:
        """First drafts of requests that were verified, or compared with what was emitted."""
        if self.probing:
            self._test.add(samples, accepted)

    def acceptance_changed(self) -> None:
        """What speculation has brought before says nothing any more."""
        self._credit = min(self._credit, 0.0)

    def ended(self, requests: int) -> None:
        """So many requests have ended."""
        self._turnover.ended(requests)

    # ---------------------------------------------------------------- going down

    def _consider_stopping(self, prospect: Callable[[], Prospect], batch_size: int) -> None:
        least = self._probe_cost
        if self._lost_cold < least and self._lost_warm < least:
            return
        if self._steps % _REFRESH_STEPS == 0:
            self._prospect = prospect()
        goes_further = self._goes_cold or not self._has_state
        going_cold = goes_further and self._lost_cold >= self._cost_of_coming_back()
        going_warm = self._has_state and self._lost_warm >= least
        if self._passes_fixed and not self._goes_cold:
            # What its passes cost shows only once they are left out.
            going_warm = going_warm or self._lost_cold >= least
        if not (going_cold or going_warm):
            return
        if self._has_state and self._credit > 0.0:
            # Requests differ: those that are here are worse than those before, and better may come.
            self._lost_cold = self._lost_warm = 0.0
            return
        cold = going_cold and self._goes_cold
        self._switch_off(Mode.OFF_COLD if cold else Mode.OFF_WARM, prospect, batch_size)

    def _consider_going_cold(self) -> None:
        may = self.mode is Mode.OFF_WARM and self._goes_cold and self._has_state
        if may and self._lost_cold >= self._cost_of_coming_back():
            self.mode = Mode.OFF_COLD
            self.switches += 1

    def _cost_of_coming_back(self) -> float:
        """Seconds, from OFF_COLD: a probe, and the gain missed until it is made and has effect."""
        if self._on_trial and self._has_state:
            # It has not paid yet: the drafter's pass until half of the requests are replaced.
            warm = self._warm_seconds / self._off_seconds
            return self._probe_cost + 0.5 * warm * self._turnover.lifetime_seconds
        missed = _MISSED_OF_INTERVAL * self._law(0.0)
        if self._has_state:
            missed += _MISSED_OF_LIFETIME * self._turnover.lifetime_seconds
        return self._probe_cost + self._prospect.gain * missed

    def _switch_off(self, mode: Mode, prospect: Callable[[], Prospect], batch_size: int) -> None:
        if self._now - self._on_since > _BRIEF_SECONDS:
            self._off_since = self._now
            self._test.reset()
        self._advantage = 0.0
        self.mode = mode
        self.switches += 1
        self._load = batch_size
        self._prospect = prospect()
        self._last_probe = self._now
        self._next_probe = self._now + self._interval()
        self._lost_warm = 0.0
        self._on_trial = False

    # ---------------------------------------------------------------- coming back

    def _watch(self, batch_size: int, prospect: Callable[[], Prospect], *, changed: bool) -> None:
        """Another load, or a change: a probe is due, if there is anything to be found."""
        another = batch_size >= 2 * self._load or 2 * batch_size <= self._load
        if self._steps % _REFRESH_STEPS and not another and not changed:
            return
        was_hopeless = self._prospect.hopeless
        self._prospect = prospect()
        if another or changed or (was_hopeless and not self._prospect.hopeless):
            self._load = batch_size
            self._off_since = self._now
            # Loads that swing must not mean probes without end.
            soonest = self._now if changed else self._last_probe + self._probe_cost / 0.01
            self._next_probe = min(self._next_probe, max(soonest, self._now))

    def _consider_probing(self, *, prompts: bool) -> None:
        # A clock that jumped back must not postpone the probe for ever.
        jumped = self._next_probe - self._now > _SLOWEST_PROBE_SECONDS
        if self._now < self._next_probe and not jumped:
            return
        if self.cold and self._has_state and not prompts:
            return
        self.probing = True
        self.probes += 1
        self._spent = 0.0
        self._test.begin(self._prospect)

    def _conclude(self, advantage: float, prospect: Callable[[], Prospect]) -> None:
        if self._prospect.hopeless and self._test.samples >= _PROBE_REQUESTS:
            # The probe has measured step times as well; they may be better than thought.
            self._prospect = prospect()
            self._test.expect(self._prospect)
        pays = self._test.verdict()
        if pays is None:
            self._advantage += (advantage - self._advantage) / _ADVANTAGE_STEPS
            if self._advantage > 0.03 and self._test.pooled_samples >= _SAMPLES_FOR_ADVANTAGE:
                # Requests differ: the planner finds enough that pay.
                pays = True
            elif self._test.samples or self._spent < _PATIENCE_STEPS * self._off_seconds:
                return
        self.probing = False
        self._last_probe = self._now
        cost = max(self._spent, 0.25 * self._off_seconds)
        self._probe_cost += 0.5 * (cost - self._probe_cost)
        if pays:
            self.back_by_probe = True
            self._on_trial, self._paid = True, 0.0
            self._switch_on()
            return
        self._next_probe = self._now + self._interval()

    def _switch_on(self) -> None:
        self.mode = Mode.ON
        self.switches += 1
        self._on_since = self._now
        self._lost_warm = self._lost_cold = 0.0

    def _interval(self) -> float:
        """Seconds from a failed probe to the next."""
        if self._fixed_interval is not None:
            return self._fixed_interval
        budget = min(self._cost_of_probe / self._overhead, _BUDGET_INTERVAL_SECONDS)
        interval = max(self._law(max(self._now - self._off_since, 0.0)), budget)
        return min(interval, _SLOWEST_PROBE_SECONDS)

    def _law(self, off: float) -> float:
        """tau; see the module."""
        gain = max(self._prospect.gain, 0.02)
        return math.sqrt(2.0 * self._cost_of_probe * (self._settling + off) / gain)

    @property
    def _cost_of_probe(self) -> float:
        return max(self._probe_cost, 1e-4)
