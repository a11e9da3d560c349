"""Kinds, limits and interface that the scripted engines share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from .arms import Arm
from .clock import Recorder
from .device import Device
from .script import Lines

Name = Literal["vllm", "sglang"]
VLLM: Name = "vllm"
SGLANG: Name = "sglang"
TITLES: dict[Name, str] = {VLLM: "vLLM", SGLANG: "SGLang"}
WITHOUT_MODEL = ("ngram",)
MAX_MODEL_LEN = 139_264
STEP_TOKENS = 8192
"""Prompt tokens of a step: vLLM's `max_num_batched_tokens` and SGLang's `chunked_prefill_size` of
an online server on an H100."""
SLOW_DECISION_MS = 1e9
"""A slow decision on this machine is no fault of the policy."""


class EngineKind(NamedTuple):
    """Parts of an engine that last from its start on.

    Attributes:
        method: of drafting, as in `device.DRAFTERS`.
        kmax: largest K.
        ahead: asynchronous scheduling; SGLang's overlap schedule.
        fixed_depth: the drafter always makes Kmax drafts; only verification is trimmed.
        fillers: drafts that are not found are filled up to Kmax, as on vLLM's model runner V2.
        engine: whose scheduler.
        cached: prompts may begin with what the engine has kept.
    """

    method: str = "eagle"
    kmax: int = 7
    ahead: bool = False
    fixed_depth: bool = False
    fillers: bool = False
    engine: Name = VLLM
    cached: bool = False


class Emitted(NamedTuple):
    """Tokens that a step has emitted for a request; times are the clock's."""

    name: str
    tokens: int
    finished: bool


class Engine(Protocol):
    """A scripted engine, as a run sees it."""

    recorder: Recorder

    def use(self, arm: Arm, device: Device, kv_tokens: int = 0) -> None:
        """Let an arm decide on a device, with everything as at a server's start.

        Args:
            arm: what decides.
            device: on whose clock.
            kv_tokens: room in the KV cache (tokens); 0: more than any cell needs.
        """
        ...

    def priced(self, arm: Arm, device: Device) -> Device:
        """Return the device with the graphs that this engine has there."""
        ...

    def restart(self) -> None:
        """Attach the plugin anew, as at a start of the server; it finds its saved state."""
        ...

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached; empty without it."""
        ...

    def submit(
        self,
        name: str,
        prompt: int,
        tokens: int,
        lines: Lines,
        start: int,
        history: Sequence[int] = (),
    ) -> None:
        """Send a request.

        Args:
            name: its id.
            prompt: its tokens.
            tokens: of its answer, the one that the prompt's last pass emits included.
            lines: records that its answer is a stretch of.
            start: first position in them.
            history: tokens that the prompt begins with.
        """
        ...

    def step(self) -> list[Emitted]:
        """Let the engine do one step."""
        ...

    def drain(self) -> None:
        """Finish the steps under way after the last answer has ended."""
        ...

    def close(self) -> None:
        """Shut down in order."""
        ...


def write_model(folder: Path, layers: int, **fields: Any) -> Path:
    """Write the configuration of a Llama whose weights nobody loads."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": layers,
        "vocab_size": 64,
        "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config | fields), encoding="utf-8")
    return folder
