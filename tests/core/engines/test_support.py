"""The line that says at start-up what is steered."""

from logging import getLogger

import pytest

from adaptive_spec.config import Config
from adaptive_spec.engines.support import Support, controller_for, start_line
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.run_time_switch import SwitchRequest
from adaptive_spec.step import Capability, Level

CAPABILITY = Capability(level=Level.UNIFORM, max_draft_tokens=3, ladder=(0, 1, 3))


def line_of(support: Support, *remarks: str) -> str:
    controller = controller_for(support, Config(mode="on", policy="static"), getLogger(__name__))
    return start_line(support, controller, details=["ranks=2"], remarks=remarks)


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


def test_what_forces_shadow_mode_also_refuses_the_mode_on_at_run_time() -> None:
    support = Support(capability=CAPABILITY, shadow=("pipelines",))
    controller = controller_for(support, Config(mode="on", policy="static"), getLogger(__name__))
    assert controller.mode == "shadow"
    with pytest.raises(ConfigError, match="pipelines"):
        controller.switch(SwitchRequest(mode="on"))
