"""The line that says at start-up what is steered."""

from __future__ import annotations

from adaptive_spec.engines.support import Support, start_line
from adaptive_spec.step import Capability, Level

CAPABILITY = Capability(level=Level.UNIFORM, max_draft_tokens=3, ladder=(0, 1, 3))


def line_of(support: Support, *remarks: str) -> str:
    return start_line(
        support, CAPABILITY, mode="on", policy="static", details=["ranks=2"], remarks=remarks
    )


def test_the_start_line_names_what_is_steered_and_how() -> None:
    support = Support(capability=CAPABILITY, method="eagle", scheduling="async")
    assert line_of(support) == (
        "adaptive_spec: mode=on policy=static method=eagle Kmax=3 capability=UNIFORM "
        "ladder=0,1,3 scheduling=async ranks=2"
    )


def test_limits_notes_and_remarks_follow_in_that_order() -> None:
    support = Support(capability=CAPABILITY, shadow=("pipelines", "trees"), notes=("K is fixed",))
    assert line_of(support, "never executed").endswith(
        "; watching only (shadow), not tested with: pipelines, trees; note: K is fixed; "
        "never executed"
    )
