"""Hardware by name: a shipped profile, a file, or a roofline."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.catalogue import GPUS, MODELS, gpu_facts, model_facts
from adaptive_spec.sim.hardware.profile_file import HardwareProfile, read_hardware_profile
from adaptive_spec.sim.hardware.roofline import (
    ENGINES,
    TENSORRT_LLM,
    VLLM,
    EngineOverhead,
    roofline_profile,
)
from adaptive_spec.validation import nearest

_ROOFLINE = "roofline:GPU:MODEL[:tpN][:fp8][:ENGINE]"


def hardware(name: str) -> Hardware:
    """The hardware of this name.

    Args:
        name: a shipped profile such as ``h100-llama-8b``; a JSON file; or
            ``roofline:GPU:MODEL[:tpN][:fp8][:ENGINE]``.

    Raises ConfigError if nothing has that name, or the file is no profile.
    """
    return Hardware(hardware_profile(name))


def hardware_profile(name: str) -> HardwareProfile:
    """Return the named hardware as a profile."""
    form, _, rest = name.partition(":")
    if form == "roofline" and rest:
        gpu, model, parallel, precision, engine = _parts(name, rest)
        return roofline_profile(
            gpu_facts(gpu),
            model_facts(model),
            tensor_parallel=parallel,
            precision=precision,
            engine=engine,
        )
    if name in hardware_names():
        return _shipped(name)
    if name.endswith(".json") or Path(name).is_file():
        return read_hardware_profile(name)
    raise ConfigError(
        f"unknown hardware {name!r}{nearest(name, hardware_names())}: one of "
        f"{', '.join(hardware_names())}; a JSON file; or "
        f"{_ROOFLINE} (GPU: {', '.join(GPUS)}; MODEL: {', '.join(MODELS)})"
    )


@lru_cache(maxsize=1)
def hardware_names() -> tuple[str, ...]:
    """Names of the profiles that come with the package, in order."""
    folder = resources.files("adaptive_spec.sim.hardware") / "profiles"
    return tuple(
        sorted(
            each.name[: -len(".json")] for each in folder.iterdir() if each.name.endswith(".json")
        )
    )


def _shipped(name: str) -> HardwareProfile:
    folder = resources.files("adaptive_spec.sim.hardware") / "profiles"
    with resources.as_file(folder / f"{name}.json") as path:
        return read_hardware_profile(path)


def _parts(name: str, rest: str) -> tuple[str, str, int, str, EngineOverhead]:
    """GPU, model, tensor parallelism, precision and engine of ``GPU:MODEL[:OPTION...]``."""
    gpu, _, options = rest.partition(":")
    model, *more = options.split(":")
    parallel, precision, engine = 1, "bf16", VLLM
    for option in more:
        if option.startswith("tp") and option[2:].isdigit() and int(option[2:]) >= 1:
            parallel = int(option[2:])
        elif option in ("bf16", "fp8"):
            precision = option
        elif option in ENGINES or option in ("tensorrt_llm", "trtllm"):
            engine = ENGINES.get(option, TENSORRT_LLM)
        else:
            raise ConfigError(
                f"hardware {name!r}: {option!r} is neither tpN nor bf16 nor fp8 nor an engine: "
                f"{', '.join(ENGINES)}"
            )
    return gpu, model, parallel, precision, engine
