"""When the drafter stops and comes back: ski rental against the best choice in hindsight.

The rent is what a step with drafts loses, the price s what the requests alive lose without them.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.switch import (
    FALLS,
    LONGEST_WAIT,
    ON_TRIAL,
    OVERHEAD,
    Switch,
)
from adaptive_spec.step import Capability, Level

NOBODY = np.zeros(0, dtype=np.int64)


def switch(lifetime: float = 20.0, saved: float = 0.5, **fields: bool) -> Switch:
    """A switch on an engine whose requests live this long (seconds), the load never having fallen.

    Drafts save this share of the time at half the load, and lose now.
    """
    made_of = {"cold_off": True} | fields
    made = Switch(Capability(level=Level.FULL, max_draft_tokens=4, **made_of))
    for _ in range(12):
        made.learn(0.0, np.arange(8), 8, lifetime, -1e-9, 0)
        made.forget(np.arange(8))
    made._lifetimes = 0.0
    for _ in range(1000):
        expect(made, saved, losing=True)
    return made


def expect(made: Switch, saved: float, *, losing: bool) -> None:
    """Let the beliefs say this of a step."""
    made.losing = losing
    made.hope(saved, 1.0, 1)


def step(made: Switch, lost: float, now: float = 0.0, batch: int = 8) -> None:
    """A step too short to change what is known of lifetimes."""
    made.learn(now, NOBODY, batch, 0.0, lost, 0)


def spell(made: Switch, losses: list[float]) -> tuple[float, bool]:
    """Seconds lost until the drafter stops, with the stake if it does, and whether it does."""
    paid = 0.0
    for lost in losses:
        if made.cold:
            break
        paid += lost
        step(made, lost)
    return paid + made.stake * made.cold, made.cold


def lived(made: Switch, batch: int, seconds: float, times: int) -> None:
    """Let so many requests live for so long, and again."""
    for _ in range(times):
        for _ in range(40):
            made.learn(0.0, np.arange(batch), batch, seconds / 40, -1.0, 0)
        made.forget(np.arange(batch))


def swinging(lifetime: float, saved: float = 0.5) -> Switch:
    """A switch whose load rises and falls in every other lifetime."""
    made = switch(lifetime, saved)
    for _ in range(60):
        lived(made, 1, lifetime, 1)
        lived(made, 32, lifetime, 1)
    return made


def test_the_stake_is_saved_in_the_time_still_to_live_times_the_falls_in_a_lifetime() -> None:
    # All live equally long: the one met at a random moment has half of it left.
    assert swinging(5.0).stake == pytest.approx(0.5 * 2.5 * 0.5, rel=0.15)
    assert swinging(2.0).stake == pytest.approx(0.5 * 1.0 * 0.5, rel=0.15)
    assert swinging(2.0, saved=0.1).stake == pytest.approx(0.1 * 1.0 * 0.5, rel=0.15)
    assert swinging(2.0, saved=0.0).stake < 1e-9


@given(lengths=st.lists(st.integers(1, 60), min_size=40, max_size=200))
def test_the_time_still_to_live_is_that_of_requests_met_at_a_random_moment(
    lengths: list[int],
) -> None:
    """A long answer is met more often, and has more left: E[l^2] / (2 E[l])."""
    made, alive = switch(), dict(enumerate(lengths))
    made = Switch(Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True))
    while alive:
        made.learn(0.0, np.array(list(alive)), len(alive), 0.5, 0.0, 0)
        alive = {slot: left - 1 for slot, left in alive.items()}
        ended = [slot for slot, left in alive.items() if not left]
        made.forget(np.array(ended, dtype=np.int64))
        alive = {slot: left for slot, left in alive.items() if left}
    # An assumed first half of a request that lived for 10 s is among them.
    known = np.array(lengths, dtype=float)
    mean = (0.5 * known.sum() + 5.0) / (len(known) + 0.5)
    spread = (known @ known + 1.0) * (len(known) + 0.5) / (known.sum() + 0.5) ** 2
    for _ in range(1000):
        expect(made, 1.0, losing=False)
    made.learn(0.0, NOBODY, 1, 0.0, 0.99 * 0.5 * mean * spread, 0)
    assert not made.cold
    made.learn(0.0, NOBODY, 1, 0.0, 0.02 * 0.5 * mean * spread, 0)
    assert made.cold


def test_requests_that_end_together_may_have_lived_for_different_times() -> None:
    made = Switch(Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True))
    for _ in range(60):
        for number in range(40):  # four live through 40 steps of half a second, four through 2
            slots = np.arange(8) if number >= 38 else np.arange(4)
            made.learn(0.0, slots, len(slots), 0.5, 0.0, 0)
        made.forget(np.arange(8))
    still = 0.5 * (40.0**2 + 2.0**2) / (2.0 * (40.0 + 2.0))
    assert made._stake_if(1.0) == pytest.approx(still, rel=0.05)


def test_lifetimes_of_long_ago_fade() -> None:
    made = switch(20.0)
    lived(made, 64, 2.0, 20)
    assert made.lifetime == pytest.approx(2.0, rel=0.1)


def test_the_stake_falls_while_the_load_stays() -> None:
    made = switch()
    stakes = []
    for _ in range(4):
        lived(made, 8, 20.0, 3)
        stakes.append(made.stake)
    assert stakes == sorted(stakes, reverse=True)
    assert stakes[-1] < 0.35 * stakes[0]
    lived(made, 1, 20.0, 2)
    assert made.stake > 2.0 * stakes[-1]


def test_a_load_that_falls_and_rises_counts_once() -> None:
    """From 64 to 1 it is halved six times, which is one fall."""
    made = switch()
    for batch in (8, 64, 32, 16, 8, 4, 2, 1):
        lived(made, batch, 20.0, 1)
    assert made._falls == 1.0
    for batch in (8, 1, 8, 1):
        lived(made, batch, 20.0, 1)
    assert made._falls == 3.0


def test_beliefs_that_expect_a_gain_need_the_whole_stake_against_them() -> None:
    """The outcomes of few requests wander by many steps' time."""
    made = switch()
    lived(made, 8, 20.0, 5)
    made.lost, whole = 0.0, made._stake_if(1.0)
    assert whole > 10.0 * made.stake
    expect(made, 0.5, losing=False)
    step(made, 0.9 * whole)
    assert not made.cold
    step(made, 0.2 * whole)
    assert made.cold


@given(losses=st.lists(st.floats(0.0, 0.4), max_size=60))
def test_losing_costs_at_most_twice_the_best_choice_and_a_step(losses: list[float]) -> None:
    """In hindsight one stops at once, for s, or never, for all that is lost."""
    made = switch()
    stake = made.stake
    paid, cold = spell(made, losses)
    best = min(sum(losses), stake)
    assert paid <= 2.0 * best + max(losses, default=0.0) + 1e-6
    assert cold == (sum(losses) > stake + 1e-6) or abs(sum(losses) - stake) < 1e-5


@given(losses=st.lists(st.floats(-1.0, 1.0), max_size=80))
def test_earlier_gains_count_for_the_time_still_to_live_at_most(losses: list[float]) -> None:
    """Behind the best moment to stop by the credit, both stakes and a step at most."""
    made = switch()
    stake, credit = made.stake, 10.0
    paid, _ = spell(made, losses)
    before = np.concatenate(([0.0], np.cumsum(losses)))
    best = min(float(before.min()) + stake, float(before[-1]))
    assert paid <= best + credit + stake + 1.0 + 0.1


@given(gains=st.lists(st.floats(-0.4, 0.0), max_size=60))
def test_the_drafter_never_stops_while_drafts_gain(gains: list[float]) -> None:
    made = switch()
    for lost in gains:
        step(made, lost)
        assert not made.cold
    assert made.lost >= -10.1


def test_gains_of_long_ago_do_not_pay_for_an_hour_of_losses() -> None:
    made = switch()
    for _ in range(1000):
        step(made, -1.0)
    assert made.lost == pytest.approx(-10.0, rel=0.02)
    paid, stake = 0.0, made.stake
    while not made.cold:
        step(made, stake / 10.0)
        paid += stake / 10.0
    assert paid == pytest.approx(10.0 + stake, rel=0.05)


def stopped(now: float = 100.0, batch: int = 8) -> Switch:
    made = switch()
    step(made, 2.0 * made.stake, now, batch)
    assert made.cold
    return made


def test_it_comes_back_after_a_time_that_makes_returns_cheap() -> None:
    made = switch()
    wait = 2.0 * made.stake / OVERHEAD
    step(made, 2.0 * made.stake, 100.0)
    assert made.until == pytest.approx(100.0 + wait)
    assert not made.returns(100.0 + 0.99 * wait, 8)
    assert made.cold
    assert made.returns(100.0 + 1.01 * wait, 8)
    assert (made.cold, made.lost) == (False, 0.0)
    assert not made.returns(1e6, 8)  # it is back already


def test_it_comes_back_when_nothing_decodes() -> None:
    """All that come next would have no drafts."""
    assert stopped().returns(101.0, 0)


def test_after_a_return_it_waits_for_requests_that_join() -> None:
    """A fiftieth of the time without the drafter may be lost until some have shown drafts."""
    made = stopped()
    assert made.returns(600.0, 4)
    assert made.stake == pytest.approx(OVERHEAD * 500.0)
    for _ in range(200):  # nobody can draft, or drafts are known to be bad
        expect(made, 0.0, losing=True)
    assert made.stake < 0.1
    step(made, 0.2, 601.0)
    assert made.cold


@pytest.mark.parametrize(
    ("batch", "back"), [(8, False), (5, False), (15, False), (4, True), (16, True), (40, True)]
)
def test_it_comes_back_when_the_load_halves_or_doubles(batch: int, back: bool) -> None:
    assert stopped().returns(101.0, batch) is back


@pytest.mark.parametrize("again", [0.1, 0.5])
def test_it_waits_for_as_long_as_weighs_returns_against_what_is_missed(again: float) -> None:
    """w = sqrt(2 lost T / h) makes lost / w + w h / (2 T) least, T since the first stop."""
    made, now = switch(4.0), 50.0
    for _ in range(12):
        made.losing, made._saved, made._again = True, 0.5, again
        lost = 1.01 * made.stake
        step(made, lost, now)
        wait, spell = made.until - now, now - 50.0
        assert wait == pytest.approx(max(lost / OVERHEAD, (2.0 * lost * spell / again) ** 0.5))
        if spell and wait > lost / OVERHEAD + 1e-9:
            cost = [lost / w + w * again / (2.0 * spell) for w in (0.9 * wait, wait, 1.1 * wait)]
            assert cost[1] == min(cost)
        now = made.until
        assert made.returns(now, 8)
        made._look = 0.0


def test_where_drafts_could_not_pay_again_only_the_load_brings_the_drafter_back() -> None:
    made = switch()
    for now in (100.0, 101.0):
        made.losing, made._saved, made._again = True, 0.5, 0.0
        step(made, 2.0 * made.stake, now)
        made.returns(now, 1)
        made._look = 0.0
    step(made, 2.0 * made.stake, 102.0)
    assert made.until == pytest.approx(102.0 + LONGEST_WAIT)


def test_the_stake_is_whole_again_once_a_spell_has_earned_it() -> None:
    made = stopped()
    now = made.until
    assert made.returns(now, 8)
    made._saved, made._look = 0.5, 0.0
    short = made.stake
    assert short == pytest.approx(ON_TRIAL * FALLS * 0.5 * 10.0, rel=0.05)
    step(made, -0.5 * short, now)  # a small gain is no success
    assert made.stake == pytest.approx(short)
    step(made, -0.6 * short, now)
    assert made.stake == pytest.approx(2.0 * short)


def test_returns_cost_a_fiftieth_of_the_time() -> None:
    """Drafts that always lose a tenth of a step of 20 ms, for an hour."""
    made, now, paid = switch(), 0.0, 0.0
    while now < 3600.0:
        if made.returns(now, 8) or not made.cold:
            expect(made, 0.5, losing=True)
            paid += 0.002
            step(made, 0.002, now)
        now += 0.02
    assert paid < 2.0 * OVERHEAD * 3600.0 + 10.0
    assert made.cold


def test_nothing_is_lost_while_the_drafter_is_off() -> None:
    made = stopped()
    until = made.until
    for _ in range(50):
        step(made, 5.0, 101.0)
    assert made.until == until
    assert made.returns(until, 8)
    assert made.lost == 0.0


@pytest.mark.parametrize("fields", [{"cold_off": False}, {"off_pass": False}])
def test_an_engine_without_a_pass_to_save_never_goes_cold(fields: dict[str, bool]) -> None:
    made = switch(**fields)
    for now in range(100):
        step(made, 10.0, float(now))
        assert not made.cold
        assert not made.returns(float(now), 1)


def test_a_clock_that_jumps_back_does_not_keep_the_drafter_off() -> None:
    made = stopped(now=1e6)
    assert made.returns(5.0, 8)
    made = stopped(now=1e3)
    assert not made.returns(950.0, 8)
    assert made.returns(950.0 + LONGEST_WAIT, 8)


def test_prompts_that_come_whatever_is_drafted_are_those_of_first_and_last_steps() -> None:
    made = switch()
    slots = np.arange(4)
    for _ in range(100):
        for _ in range(9):
            made.learn(0.0, slots, 4, 0.01, -0.001, 40)
        made.forget(slots)
    assert made.shared_prompts == pytest.approx(40 * 2.0 / 10.0, rel=0.05)
    for _ in range(300):
        made.forget(slots)  # requests without a step: all their prompts come anyway
    assert made.shared_prompts == pytest.approx(40.0, rel=0.05)
    assert Switch(Capability(level=Level.FULL, max_draft_tokens=4)).shared_prompts == 0.0


def test_a_slots_next_request_counts_its_own_steps() -> None:
    made, slots = switch(), np.arange(64)
    for _ in range(400):
        made.learn(0.0, slots, 64, 0.01, -0.001, 10)
    made.forget(slots)
    for _ in range(60):
        made.learn(0.0, slots, 64, 0.01, -0.001, 10)
        made.forget(slots)
    assert made.shared_prompts == pytest.approx(10.0, rel=0.05)  # answers of one step each
