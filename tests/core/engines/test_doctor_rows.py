"""What the adapters' reports have in common."""

import numpy as np
import pytest

from adaptive_spec.config import Config
from adaptive_spec.engines.doctor_rows import installed_version, plugin_refusal, switched_on_by


def test_the_version_is_that_of_the_first_distribution_that_is_installed() -> None:
    assert installed_version(("no-such-distribution", "numpy")) == np.__version__
    assert installed_version(("no-such-distribution",)) is None


@pytest.mark.parametrize(
    ("names", "empty_allows_all", "refused"),
    [
        (None, False, False),
        ("adaptive_spec", False, False),
        ("other, adaptive_spec", False, False),
        ("other", True, True),
        ("", True, False),
        ("", False, True),
    ],
)
def test_a_list_of_plugins_without_us_is_named(
    monkeypatch: pytest.MonkeyPatch, names: str | None, empty_allows_all: bool, refused: bool
) -> None:
    monkeypatch.delenv("ENGINE_PLUGINS", raising=False)
    if names is not None:
        monkeypatch.setenv("ENGINE_PLUGINS", names)
    found = plugin_refusal("ENGINE_PLUGINS", "Engine", empty_allows_all=empty_allows_all)
    assert bool(found) == refused
    assert ("ENGINE_PLUGINS" in found) == refused


def test_what_is_switched_on_names_mode_policy_and_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VARIABLE", "/etc/spec.json")
    said = switched_on_by(Config(mode="shadow", policy="static"), "VARIABLE")
    assert said == "mode shadow, policy static, VARIABLE=/etc/spec.json"
