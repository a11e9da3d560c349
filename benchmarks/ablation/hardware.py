"""Step times that the simulator's profiles lack: such as fall, and a dear first draft."""

from __future__ import annotations

import msgspec
from adaptive_spec.sim.hardware.coefficients import CoefficientHardware

from adaptive_spec.sim.hardware.base import MeasuredDraft
from adaptive_spec.sim.hardware.profile_file import ANY_DRAFTER, HardwareProfile
from adaptive_spec.sim.hardware.registry import hardware, hardware_profile

# Medians of 119 to 3 steps each with one request, and from 8 tokens on with two: the step trace in
# benchmarks/results/vllm_cpu-good-mixed-t0.8-probabilistic-traces, passes taken off.
_CPU_TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16]
_CPU_SECONDS = [
    *(0.0667, 0.0704, 0.0719, 0.0682, 0.0711, 0.0730, 0.0811),
    *(0.0848, 0.0890, 0.0911, 0.0955, 0.1150),
]
_CPU_PASS = 0.00085
_FIRST_DRAFT, _FIRST_DRAFT_PER_REQUEST = 0.0006, 2e-6


def fake_hardware(name: str) -> CoefficientHardware:
    """`vllm-cpu`, `h100-dear-first-draft`, or any other by its own name."""
    if name == "vllm-cpu":
        return CoefficientHardware(_falling())
    if name == "h100-dear-first-draft":
        profile = hardware_profile("h100-llama-8b")
        return CoefficientHardware(
            msgspec.structs.replace(
                profile,
                name=name,
                any_draft=_FIRST_DRAFT,
                any_draft_per_request=_FIRST_DRAFT_PER_REQUEST,
            )
        )
    found = hardware(name)
    assert isinstance(found, CoefficientHardware)
    return found


def _falling() -> HardwareProfile:
    flat = HardwareProfile(
        schema=1,
        name="vllm-cpu",
        source="the project's own step trace of vLLM on two CPU cores, bench pair",
        memory_bytes=2e9,
        weight_bytes=1e8,
        kv_bytes_per_token=1e4,
        layers=8,
        tokens=_CPU_TOKENS,
        seconds=sorted(_CPU_SECONDS),
        drafts={ANY_DRAFTER: MeasuredDraft(pass_=_CPU_PASS, source="the same")},
    )
    # Profiles that are read from files must not fall; these do.
    msgspec.structs.force_setattr(flat, "seconds", _CPU_SECONDS)
    return flat
