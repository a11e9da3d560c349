"""OFF comes when staying on has cost as much as coming back; probes bring it back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from adaptive_spec.policies.switch import probes
from adaptive_spec.policies.switch.break_even import Prospect
from adaptive_spec.policies.switch.modes import ModeMachine, RequestLifetime
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, Mode

STEP, PASS = 0.01, 0.0006


class Forecast(NamedTuple):
    """What a step is expected to take and bring."""

    expected: Prospect
    off_seconds: float = STEP
    warm_seconds: float = PASS
    advantage: float = 0.0

    slots: IntArray = np.arange(0)
    """Of the requests that may verify drafts."""
    saved: float = 0.0
    """Seconds that drafts save of a step per token, at every load."""
    gain_of_none: tuple[float, float] = (1.0, 0.0)
    timed_drafts: int = 100

    @property
    def drafted_slots(self) -> IntArray:
        return self.slots

    def prospect(self) -> Prospect:
        return self.expected

    def saved_seconds(self, batch_sizes: list[int]) -> FloatArray:
        return np.full(len(batch_sizes), self.saved)

    def log_gain_of_none(self) -> tuple[float, float]:
        return self.gain_of_none


OUTLOOK = Prospect(gain=0.3, break_even=0.1, worthwhile=0.4)
HOPELESS = Prospect(gain=0.0, break_even=1.5, worthwhile=0.97)


def capability(**changes: object) -> Capability:
    settings = {"level": Level.FULL, "max_draft_tokens": 4, "cold_off": True, **changes}
    return Capability(**settings)


def stopped(of: Capability, batch: int = 8, prompts: bool = True) -> tuple[ModeMachine, int]:
    """A machine that is off and cold, as drafts lose a tenth, and the number of its steps."""
    machine, n = ModeMachine(of), 0
    while machine.mode is not Mode.OFF_COLD:
        machine.step(Forecast(OUTLOOK), batch_size=batch, prompts=prompts, now=n * STEP)
        machine.add_planned_step(seconds=STEP, tokens=batch * 0.9)
        n += 1
    return machine, n


class Server:
    """Steps of a batch of alike requests around a machine, with what a policy would tell it."""

    def __init__(self, of: Capability, *, batch: int = 8, lifetime: int = 200) -> None:
        self.machine, self.batch, self.lifetime = ModeMachine(of), batch, lifetime
        self.has_state = of.off_pass
        self.random = np.random.default_rng(0)
        self.now, self.step_number = 0.0, 0
        self.hazard, self.outlook = 0.03, OUTLOOK
        self.fresh = np.ones(batch, dtype=bool)
        self.age = self.random.integers(0, lifetime, batch)
        self.advantage = 0.0
        self.seconds_lost = 0.0
        self.probing_began: list[float] = []

    def step(self, *, gain: float = -0.05) -> Mode:
        machine = self.machine
        ending = self.age >= self.lifetime
        machine.ended(np.flatnonzero(ending))
        was_probing = machine.probing
        mode = machine.step(
            Forecast(
                self.outlook,
                warm_seconds=PASS if self.has_state else 0.0,
                advantage=self.advantage,
            ),
            batch_size=self.batch,
            prompts=bool(ending.any()),
            now=self.now,
        )
        if machine.probing and not was_probing:
            self.probing_began.append(self.now)
        self.fresh[ending] = True
        self.age = np.where(ending, 0, self.age + 1)
        if machine.cold and self.has_state:
            self.fresh[:] = False
        seconds, tokens = STEP, float(self.batch)
        if machine.probing or mode is Mode.OFF_WARM:
            seconds += PASS
        elif mode is Mode.ON:
            tokens *= 1.0 + gain
        machine.add_planned_step(seconds=seconds, tokens=tokens)
        self.seconds_lost += seconds - tokens * STEP / self.batch
        if machine.probing:
            samples = min(int(self.fresh.sum()), machine.probe_requests)
            accepted = int(self.random.binomial(samples, self.hazard))
            machine.scored(samples=samples, accepted=accepted)
        self.now += seconds
        return mode

    def run(self, seconds: float, **arguments: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step(**arguments)

    def until(self, mode: Mode, limit: float = 600.0, **arguments: float) -> float:
        began = self.now
        while self.step(**arguments) is not mode:
            assert self.now < began + limit, f"{mode} not reached"
        return self.now - began


def test_it_stays_on_while_speculation_pays() -> None:
    server = Server(capability())
    server.run(60.0, gain=0.05)
    assert server.machine.mode is Mode.ON
    assert server.machine.switches == 0


def test_a_gain_that_comes_and_goes_does_not_switch_it_off() -> None:
    server = Server(capability())
    for n in range(4000):
        server.step(gain=0.3 if n % 4 == 0 else -0.05)
    assert server.machine.mode is Mode.ON


def test_a_few_hard_requests_do_not_stop_what_the_planner_expects_to_gain() -> None:
    """As in four requests of a real vLLM, all hard to draft for, among others that are not."""
    server = Server(capability(), batch=4, lifetime=30)
    server.advantage = 0.08
    server.run(2.0, gain=0.0)
    server.run(1.0, gain=-0.2)
    assert server.machine.switches == 0


def test_an_expected_gain_is_forgotten_once_acceptance_has_changed() -> None:
    server = Server(capability(), batch=4, lifetime=30)
    server.advantage = 0.08
    server.run(2.0, gain=0.01)
    server.machine.acceptance_changed()
    server.advantage = -0.05
    assert server.until(Mode.OFF_COLD, gain=-0.2) < 3.0


def test_credit_is_forgotten_once_acceptance_has_changed() -> None:
    server = Server(capability(), batch=4)
    server.run(20.0, gain=0.3)
    assert server.machine.snapshot()["credit"] > 0.1
    server.machine.acceptance_changed()
    assert server.machine.snapshot()["credit"] == 0.0


def test_the_lifetime_of_a_request_follows_those_that_ended_last() -> None:
    lifetime = RequestLifetime()
    for seconds in (1.0, 10.0):
        for _ in range(1000):
            lifetime.passed(1, seconds)
            lifetime.ended(1)
    assert lifetime.seconds > 9.0


def test_going_cold_at_once_saves_at_most_a_return() -> None:
    server = Server(capability())
    server.until(Mode.OFF_COLD)
    coming_back = 0.5 * OUTLOOK.gain * server.lifetime * STEP
    assert 0.1 * coming_back < server.seconds_lost < 1.2 * coming_back


def test_longer_requests_make_it_stay_warm_for_longer() -> None:
    reached = {}
    for lifetime in (50, 400):
        server = Server(capability(), lifetime=lifetime)
        reached[lifetime] = server.until(Mode.OFF_COLD)
    assert reached[400] > 2.0 * reached[50]


def test_an_engine_without_cold_off_stays_warm() -> None:
    server = Server(capability(cold_off=False))
    server.until(Mode.OFF_WARM, gain=-0.2)
    server.run(120.0)
    assert server.machine.mode is Mode.OFF_WARM


def test_fixed_passes_are_left_out_to_see_what_they_cost() -> None:
    """As long as they always run, K = 0 seems to cost no more than OFF."""
    fixed = capability(level=Level.VERIFY, cold_off=False, depth_follows=False)
    Server(fixed).until(Mode.OFF_WARM, limit=60.0, gain=-0.002)


def test_a_drafter_without_state_goes_cold_at_once() -> None:
    server = Server(capability(off_pass=False))
    assert server.until(Mode.OFF_COLD, gain=-0.05) < 3.0


def test_past_gains_keep_a_drafter_without_state_on_between_bursts() -> None:
    server = Server(capability(off_pass=False), batch=1)
    for _ in range(20):
        server.run(1.0, gain=0.3)
        server.run(4.0, gain=-0.02)
        assert server.machine.switches == 0


def test_tokens_beyond_the_prediction_keep_it_on() -> None:
    server = Server(capability(off_pass=False), batch=1)
    for n in range(2000):
        server.step(gain=-0.02)
        server.machine.emitted(surplus=4.0 if n % 50 == 0 else 0.0)
    assert server.machine.switches == 0


def test_past_gains_are_used_up() -> None:
    server = Server(capability(off_pass=False))
    server.run(60.0, gain=0.3)
    server.until(Mode.OFF_COLD, limit=30.0, gain=-0.2)


def steps_until_cold(saved: float, **changes: object) -> int:
    """Steps of eight alive requests whose drafts lose 5 % at this load and save so much below."""
    machine = ModeMachine(capability())
    slots = np.arange(8)
    machine.lengths.emitted(slots, np.full(8, 20))
    for n in range(5000):
        forecast = Forecast(OUTLOOK, slots=slots, saved=saved)._replace(**changes)
        machine.step(forecast, batch_size=8, prompts=False, now=n * STEP)
        if machine.mode is Mode.OFF_COLD:
            return n
        machine.add_planned_step(seconds=STEP, tokens=8 * 0.95)
        if n % 10 == 0:
            machine.ended(np.array([20]))
    return 5000


def test_the_more_those_alive_would_lose_the_longer_they_keep_the_drafter() -> None:
    nothing, some, much = (steps_until_cold(saved) for saved in (0.0, 0.0005, 0.002))
    assert nothing < some < much < 5000


def test_the_drafter_is_kept_while_the_step_times_leave_a_doubt_that_costs_no_more_than_it() -> (
    None
):
    sure, doubt, more = (
        steps_until_cold(0.0005, gain_of_none=(gain, 0.04)) for gain in (0.09, 0.04, 0.02)
    )
    assert 1.5 * sure < doubt < 0.7 * more < 5000
    assert steps_until_cold(0.0005, gain_of_none=(-0.01, 0.04)) == 5000


def test_the_drafter_is_not_stopped_where_no_draft_was_timed_at_this_load() -> None:
    assert steps_until_cold(0.0, timed_drafts=3) == 5000
    assert steps_until_cold(0.0, timed_drafts=4) < 500


def test_the_drafter_is_not_stopped_while_the_load_falls() -> None:
    machine = ModeMachine(capability())
    for n in range(400):
        machine.step(Forecast(OUTLOOK), batch_size=400 - n, prompts=False, now=n * STEP)
        machine.add_planned_step(seconds=STEP, tokens=0.8 * (400 - n))
        machine.ended(np.array([n]))
        assert machine.mode is not Mode.OFF_COLD
    for n in range(400, 500):
        machine.step(Forecast(OUTLOOK), batch_size=8, prompts=False, now=n * STEP)
        machine.add_planned_step(seconds=STEP, tokens=0.8 * 8)
    assert machine.mode is Mode.OFF_COLD


def test_warm_it_comes_back_where_a_k_may_pay_for_all_that_is_known() -> None:
    for gain_of_none, mode in (((0.05, 0.04), Mode.OFF_WARM), ((0.05, 0.1), Mode.ON)):
        machine = ModeMachine(capability(cold_off=False))
        n = 0
        while machine.mode is Mode.ON:
            machine.step(Forecast(OUTLOOK), batch_size=8, prompts=False, now=n * STEP)
            machine.add_planned_step(seconds=1.5 * STEP, tokens=8.0)
            n += 1
        for more in range(8):
            of = Forecast(OUTLOOK, gain_of_none=gain_of_none)
            machine.step(of, batch_size=8, prompts=False, now=(n + more) * STEP)
        assert machine.mode is mode


def test_a_probe_judges_by_the_load_of_now() -> None:
    machine, n = stopped(capability(off_pass=False))
    while not machine.probing:
        machine.step(Forecast(OUTLOOK), batch_size=8, prompts=True, now=n * STEP)
        n += 1
    for _ in range(20):  # half of the drafts are accepted, which pays no more at this load
        machine.scored(samples=16, accepted=8)
        crowded = Forecast(Prospect(gain=0.1, break_even=0.8, worthwhile=0.95))
        machine.step(crowded, batch_size=8, prompts=True, now=n * STEP)
    assert machine.mode is Mode.OFF_COLD


@pytest.mark.parametrize(
    ("gain_of_none", "mode"), [((-0.4, 0.2), Mode.OFF_WARM), ((0.1, 0.05), Mode.OFF_COLD)]
)
def test_a_failed_probe_takes_the_drafter_from_those_it_read_in_only_beyond_doubt(
    gain_of_none: tuple[float, float], mode: Mode
) -> None:
    machine, n = stopped(capability(), batch=1, prompts=False)
    while not machine.probing:
        machine.prompts_only(now=n * STEP)
        n += 1
    of = Forecast(OUTLOOK, slots=np.arange(48), saved=0.001, gain_of_none=gain_of_none)
    while machine.probing:
        machine.scored(samples=16, accepted=0)
        machine.step(of, batch_size=48, prompts=False, now=n * STEP)
        n += 1
    assert machine.mode is mode


def test_where_nothing_is_drafted_for_long_the_drafter_is_probed() -> None:
    """Four requests without end, acceptance 0 for 37,000 steps: nobody noticed when it rose."""
    server = Server(capability(cold_off=False), batch=4, lifetime=10**9)
    server.until(Mode.OFF_WARM, limit=10.0, gain=0.0)
    server.hazard = 0.8
    server.fresh[:] = True
    assert server.until(Mode.ON, limit=60.0, gain=0.0) < 60.0


def test_an_engine_that_cannot_run_without_drafts_never_stops() -> None:
    server = Server(capability(level=Level.UNIFORM, ladder=(1, 2, 4)))
    server.run(60.0, gain=-0.5)
    assert server.machine.mode is Mode.ON


def test_nothing_stops_before_step_times_are_known() -> None:
    machine = ModeMachine(capability())
    for n in range(2000):
        machine.step(
            Forecast(OUTLOOK),
            batch_size=4,
            prompts=True,
            now=n * STEP,
            ready=False,
        )
        machine.add_planned_step(seconds=2 * STEP, tokens=4.0)
    assert machine.mode is Mode.ON


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("off_pass", [True, False])
def test_a_dead_drafter_costs_less_than_half_a_per_cent(batch: int, off_pass: bool) -> None:
    server = Server(capability(off_pass=off_pass), batch=batch)
    server.until(Mode.OFF_COLD)
    server.seconds_lost, began = 0.0, server.now
    server.run(300.0)
    assert server.machine.mode is Mode.OFF_COLD
    assert len(server.probing_began) >= 5
    assert server.seconds_lost < 0.005 * (server.now - began)


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("dead_seconds", [30.0, 600.0])
def test_a_drafter_that_revives_is_back_within_30_seconds(batch: int, dead_seconds: float) -> None:
    server = Server(capability(), batch=batch)
    server.until(Mode.OFF_COLD)
    server.run(dead_seconds)
    server.hazard = 0.8
    assert server.until(Mode.ON, limit=30.0) <= 30.0


def test_from_cold_a_probe_waits_for_requests_that_begin() -> None:
    server = Server(capability(), batch=1, lifetime=300)
    server.until(Mode.OFF_COLD)
    server.run(60.0)
    machine = server.machine
    while machine.probing:
        server.step()
    server.age[:] = 5  # nobody ends for another 295 steps
    server.now += 600.0  # a probe is long due
    server.step()
    assert machine.cold
    assert machine.prompts_only(now=server.now) is Mode.OFF_COLD
    assert machine.probing
    assert not machine.cold


@pytest.mark.slow
def test_probes_become_rarer_the_longer_it_is_off() -> None:
    server = Server(capability())
    server.until(Mode.OFF_COLD)
    server.run(1800.0)
    gaps = np.diff(server.probing_began)
    assert gaps[-5:].mean() > 1.5 * gaps[:5].mean()


@pytest.mark.slow
def test_twice_the_load_makes_a_probe_due() -> None:
    server = Server(capability(off_pass=False), batch=8)
    server.until(Mode.OFF_COLD)
    server.run(1200.0)
    while server.machine.probing:
        server.step()
    before = len(server.probing_began)
    server.run(1.0)
    assert len(server.probing_began) == before
    server.batch, server.age, server.fresh = 16, np.zeros(16, dtype=int), np.ones(16, dtype=bool)
    server.run(2.0)
    assert len(server.probing_began) > before


def test_another_load_brings_the_next_probe_forward() -> None:
    machine, n = stopped(capability(off_pass=False))
    machine._schedule.next_probe = now = n * STEP + 500.0
    for batch, soon in ((12, False), (16, True)):
        machine.step(Forecast(OUTLOOK), batch_size=batch, prompts=True, now=now - 490.0)
        assert (machine.next_probe < now) == soon


def test_looking_up_in_vain_counts_as_a_loss_of_its_own() -> None:
    def steps(tokens: float) -> int:
        machine = ModeMachine(capability(off_pass=False))
        for n in range(10_000):
            machine.step(Forecast(OUTLOOK), batch_size=8, prompts=False, now=n * STEP)
            machine.ended(np.array([n]))
            if machine.mode is not Mode.ON:
                return n
            machine.add_planned_step(seconds=STEP, tokens=tokens)
        return 10_000

    # 1 % of a step against .25 % by the margin alone.
    assert steps(8 * 1.0025) > 3.0 * steps(8.0)


def test_a_load_that_swings_does_not_mean_probes_without_end() -> None:
    server = Server(capability(off_pass=False), batch=8)
    server.until(Mode.OFF_COLD)
    server.seconds_lost, began = 0.0, server.now
    for n in range(6000):
        server.batch = 4 if n // 10 % 2 else 16
        server.age = np.zeros(server.batch, dtype=int)
        server.fresh = np.ones(server.batch, dtype=bool)
        server.step()
    assert server.seconds_lost < 0.015 * (server.now - began)


@pytest.mark.slow
def test_where_nothing_can_be_gained_probes_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_OVERHEAD", 1.0)
    begun = {}
    for outlook in (OUTLOOK, HOPELESS):
        server = Server(capability(off_pass=False))
        server.outlook = outlook
        server.until(Mode.OFF_COLD)
        server.run(600.0)
        begun[outlook.gain] = len(server.probing_began)
    assert 0 < begun[0.0] < 0.5 * begun[0.3]


@pytest.mark.slow
def test_a_brief_return_does_not_start_the_law_afresh() -> None:
    server = Server(capability(off_pass=False))
    server.until(Mode.OFF_COLD)
    server.run(1000.0)
    server.hazard = 0.8
    server.until(Mode.ON)
    server.hazard = 0.03
    server.until(Mode.OFF_COLD)
    server.run(300.0)
    began = np.array(server.probing_began)
    first, last = began < began[0] + 300.0, began > server.now - 300.0
    assert last.sum() < 0.7 * first.sum()


def test_a_clock_that_jumps_back_still_probes() -> None:
    server = Server(capability(off_pass=False))
    server.now = 1e6
    server.until(Mode.OFF_COLD)
    server.now = 0.0
    server.run(5.0)
    assert server.probing_began
