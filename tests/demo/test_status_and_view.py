import io
from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from benchmarks.bench_pair.prompts import Job
from demo.errors import DemoError
from demo.phases import Phase, Watcher
from demo.status import acceptance, k_of_drafting, mean_k, require_sound, shares
from demo.traffic import Answer
from demo.view import PhaseView, verdict


def status(steps: int, **changes: Any) -> dict[str, Any]:
    """A status after so many steps of one request: K = 2 each, one accepted."""
    values: dict[str, Any] = {
        "steps": steps,
        "verified_tokens": 2 * steps,
        "accepted_tokens": steps,
        "emitted_tokens": 2 * steps,
        "requests_by_k": {"2": steps},
        "steps_by_mode": {"on": steps},
        "fail_opens": {},
        "last_reason": "planned",
        "last_depth": 3,
    }
    return values | changes


def test_watcher_counts_within_phases() -> None:
    watcher, first, second = Watcher(), Phase(1), Phase(4)
    assert not watcher.update(first, None, 0.5)
    assert watcher.update(first, status(10), 1.0)
    assert not watcher.update(first, status(10), 2.0), "nothing new"
    assert watcher.update(first, status(30), 3.0)
    later = status(100, steps_by_mode={"on": 40, "off_warm": 60})
    assert watcher.update(second, later, 4.0)
    assert first.tokens_per_second == pytest.approx(20.0)
    assert first.counts == {"steps": 20, "drafted": 40, "accepted": 20, "emitted": 40, "2": 20}
    assert second.counts["emitted"] == 140
    assert acceptance(second.counts) == pytest.approx(0.5)
    assert mean_k(second.counts) == pytest.approx(2.0)
    assert k_of_drafting(second.counts) == pytest.approx(2.0)
    some = second.counts + Counter({"0": 70})  # a request that copies nothing
    assert (mean_k(some), k_of_drafting(some)) == (pytest.approx(1.0), pytest.approx(2.0))
    assert k_of_drafting(Counter({"0": 70})) is None
    assert shares(second.counts) == [0, 0, 1, 0, 0, 0, 0]
    assert (first.mode, second.mode) == ("on", "off_warm")
    assert watcher.seconds == [(3.0, 1, 2.0, 20.0), (4.0, 4, 2.0, 140.0)]


def test_a_run_that_was_not_ours_is_an_error() -> None:
    assert require_sound(status(100)) == []
    faults = {"fail_opens": {"plan took": 2}, "steps_by_mode": {"on": 98, "engine": 2}}
    assert require_sound(status(100, **faults)) == ["plan took: 2 times"]
    faults["steps_by_mode"] = {"on": 50, "engine": 50}
    with pytest.raises(DemoError, match="50 of 100 steps ran the engine's own K"):
        require_sound(status(100, **faults))
    with pytest.raises(DemoError, match="no status file"):
        require_sound(None)


def a_phase() -> Phase:
    phase = Phase(4, began=1.0)
    watcher = Watcher()
    for second in (1, 2):
        watcher.update(phase, status(100 * second), second)
    return phase


@pytest.mark.parametrize("terminal", [True, False])
def test_view_shows_phases(terminal: bool) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=110)
    view, phase = PhaseView(console), a_phase()
    pieces = [("It was", 1), (" a dark night", 3)]
    answer = Answer(Job("story", 1, "Tell a story.\nA short one.", 9), 0, pieces, finished=True)
    with view.showing([phase]):
        view.changed(phase, [answer])
        view.ended(phase, [answer])
    text = output.getvalue()
    assert "Tell a story." in text
    assert "a dark night" in text
    assert ("planned" if terminal else "2.00 drafts verified per request and step") in text
    assert ("\x1b[" in text) == terminal
    assert text.count("\n") > 1 or not terminal


def test_the_verdict_says_in_words_what_was_seen() -> None:
    estimates = {"planned": 150.0, "no_speculation": 100.0}
    quiet, busy = Phase(1), Phase(16)
    for phase, k in ((quiet, "4"), (busy, "1")):
        phase.counts = Counter({"steps": 10, "drafted": 10 * int(k), "accepted": 5, k: 10})
        phase.status = status(10, estimates=estimates)
    found = verdict([busy, quiet, Phase(4)])
    assert found.startswith("verdict: K followed the load. 4.00 drafts per request and step with 1")
    assert "1.00 with 16 clients" in found
    assert "Estimated over no speculation: 1 client +50%, 16 clients +50%." in found
    told = verdict(
        [busy, quiet], ["over the engine's own K: +9.0% (+4.0% to +14.0%), 20 blocks", "at"]
    )
    assert told.splitlines()[1:] == [
        "  measured over the engine's own K: +9.0% (+4.0% to +14.0%), 20 blocks"
    ]
    busy.counts = quiet.counts
    assert "K hardly moved" in verdict([quiet, busy])
    assert verdict([Phase(1)]) == "verdict: none, as no step was seen"
