"""OFF comes when staying on has cost as much as coming back; probes bring it back."""

from __future__ import annotations

from adaptive_spec.modes import ModeMachine
from adaptive_spec.values import Mode

STEP = 0.01


def go_off(machine: ModeMachine, now: float = 0.0) -> float:
    for _ in range(1000):
        if machine.step(advantage=-0.3, step_seconds=STEP, load=2, now=now) is not Mode.ON:
            return now
        machine.spent(seconds=0.1 * STEP, samples=1)
        now += STEP
    raise AssertionError("never went off")


def test_it_stays_on_while_speculation_pays() -> None:
    machine = ModeMachine()
    for n in range(1000):
        assert machine.step(advantage=0.1, step_seconds=STEP, load=2, now=n * STEP) is Mode.ON


def test_it_goes_off_once_exploring_has_cost_a_probe() -> None:
    machine = ModeMachine()
    now = go_off(machine)
    assert 0.1 < now / STEP * 0.1 < 40
    assert machine.mode is Mode.OFF_WARM
    assert machine.switches == 1


def run(machine: ModeMachine, now: float, seconds: float, revived_at: float) -> tuple[float, int]:
    """Time until ON again, and the probes made."""
    probes = 0
    was_probing = False
    end = now + seconds
    while now < end:
        advantage = 0.5 if now >= revived_at and machine.probing else -0.3
        mode = machine.step(advantage=advantage, step_seconds=STEP, load=2, now=now)
        if mode is Mode.ON:
            return now, probes
        if machine.probing:
            probes += not was_probing
            machine.spent(seconds=0.1 * STEP, samples=4)
        was_probing = machine.probing
        now += STEP
    return float("inf"), probes


def test_a_dead_drafter_is_probed_more_and_more_rarely() -> None:
    machine = ModeMachine()
    now = go_off(machine)
    _, early = run(machine, now, 60.0, revived_at=float("inf"))
    _, late = run(machine, now + 3600.0, 60.0, revived_at=float("inf"))
    assert early >= 2
    assert 0 < late < early


def test_a_drafter_that_revives_is_noticed_within_30_seconds() -> None:
    machine = ModeMachine()
    now = go_off(machine)
    back, _ = run(machine, now, 600.0, revived_at=now + 120.0)
    assert back - (now + 120.0) <= 30.0
    assert machine.mode is Mode.ON


def test_another_load_makes_a_probe_due() -> None:
    machine = ModeMachine()
    now = go_off(machine)
    machine.step(advantage=-0.3, step_seconds=STEP, load=2, now=now + STEP)
    assert not machine.probing
    machine.step(advantage=-0.3, step_seconds=STEP, load=5, now=now + 2 * STEP)
    assert machine.probing


def test_a_probe_near_break_even_takes_more_samples() -> None:
    samples = {}
    for advantage in (-0.01, -0.5):
        machine = ModeMachine()
        now = go_off(machine)
        machine.step(advantage=-0.3, step_seconds=STEP, load=9, now=now)
        assert machine.probing
        count = 0
        while machine.probing:
            machine.spent(seconds=0.001, samples=4)
            count += 4
            machine.step(advantage=advantage, step_seconds=STEP, load=9, now=now)
        samples[advantage] = count
    assert samples[-0.01] >= 150
    assert samples[-0.5] <= 40


def test_a_clock_that_jumps_back_still_probes() -> None:
    machine = ModeMachine()
    go_off(machine, now=1e6)
    machine.step(advantage=-0.3, step_seconds=STEP, load=2, now=0.0)
    assert machine.probing
