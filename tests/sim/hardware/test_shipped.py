from __future__ import annotations

import pytest

from adaptive_spec.sim.drafters.chains import NoDrafter
from adaptive_spec.sim.engine.kv_pool import pool_tokens
from adaptive_spec.sim.hardware.catalogue import gpu_facts, model_facts
from adaptive_spec.sim.hardware.registry import hardware, hardware_names, hardware_profile
from adaptive_spec.sim.hardware.roofline import roofline_profile

_ROOFLINES = [name for name in hardware_names() if not name.endswith("-measured")]


@pytest.mark.parametrize("name", _ROOFLINES)
def test_every_profile_that_was_not_measured_is_the_roofline_of_its_gpu_and_model(name):
    shipped = hardware_profile(name)
    computed = roofline_profile(
        gpu_facts(shipped.gpu),
        model_facts(shipped.model),
        tensor_parallel=shipped.tensor_parallel,
        name=name,
    )
    assert shipped == computed


@pytest.mark.parametrize("name", hardware_names())
def test_every_shipped_profile_has_a_source_and_room_for_kv(name):
    machine = hardware(name)
    assert len(machine.source) > 40
    assert pool_tokens(machine, NoDrafter()) > 8192


def test_the_machines_an_operator_would_look_for_are_there():
    wanted = {
        *(f"{gpu}-llama-8b" for gpu in ("a100", "h100", "h200", "l40s", "b200")),
        *(f"{gpu}-llama-8b" for gpu in ("rtx3090", "rtx4090", "rtxpro6000")),
        *(f"{gpu}-llama-70b-tp4" for gpu in ("h100", "h200", "b200")),
        *(f"{gpu}-qwen3-30b-a3b" for gpu in ("h100", "h200")),
    }
    assert wanted <= set(hardware_names())
