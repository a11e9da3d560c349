"""How an engine of the bench is configured, and the processes that it can run in."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import msgspec

from .processes import ROOT

V1, V1_ASYNC, SGLANG = "vllm-v1", "vllm-v1-async", "sglang"
MAX_MODEL_LEN = 256
KMAX = 6
SLOW_DECISION_MS = 1e9
"""A slow decision on this machine is no fault of the policy."""

_VLLM = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
_SGLANG_FOLDERS = ("tests/sglang/stand_in", "tests/sglang/support")
"""The stand-in for SGLang's compiled operators, which loads when Python starts, and its models."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is configured.

    Attributes:
        models: folder of the bench models.
        engine: ``vllm-v1``, ``vllm-v1-async`` or ``sglang``.
        method: of drafting: `vllm.MODELS`; of SGLang also ``eagle`` and ``none``.
        config: of adaptive-spec.
        most_requests: that run at a time.
    """

    models: str
    engine: str
    method: str
    config: dict[str, Any] = {}
    most_requests: int = 256


def environment(engine: str) -> dict[str, str]:
    """Return the variables of a process that this engine runs in."""
    if engine == V1:
        return _VLLM
    if engine == V1_ASYNC:
        # Scheduling ahead compiles a small kernel, which takes longer than it saves here.
        return {**_VLLM, "TORCHDYNAMO_DISABLE": "1"}
    given = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([*(str(ROOT / folder) for folder in _SGLANG_FOLDERS), *given])
    return {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def interpreter(engine: str) -> str:
    """Return Python of the environment that an engine is installed in.

    This one if it has the engine. SGLang's packages do not fit vLLM's: it is where
    `scripts/environments.py sglang` has put it.
    """
    if engine != SGLANG or importlib.util.find_spec(SGLANG):
        return sys.executable
    folder = ROOT / os.environ.get("ADAPTIVE_SPEC_VENVS", ".venv")
    return str(folder / SGLANG / "bin" / "python")
