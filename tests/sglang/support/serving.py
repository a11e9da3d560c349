"""Real SGLang processes for the tests: environment, arguments, and an engine driven from here.

An engine lives in a process of its own (`engine_process.py`), because SGLang keeps its
configuration in globals and ends its children by killing the tree of the process it runs in.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STAND_IN = HERE.parent / "stand_in"
ROOT = HERE.parents[2]

KMAX = 3
PLAIN = {"max_running_requests": 32, "max_total_tokens": 12_000}
"""Options of the engine without speculation: it never runs out of memory."""
MAX_TOKENS = 1000
"""Of the KV pool: too few for the longest scenario."""
LADDER = (0, 1, 2, 3)
EVERY_K = {"1": {"candidate_steps": list(LADDER)}}
"""SGLang's adaptive configuration with one candidate set for all batch sizes."""

PATIENT = {"max_decision_ms": 60_000.0}
"""`fail_open` for a machine so busy that a decision may take long."""

SERVED_MODELS = {"llama", "llama_eagle", "llama_eagle3", "qwen2", "qwen3", "registry", "utils"}
"""Modules of sglang.srt.models that are needed; importing all 250 takes most of a start."""


def environment(*, config: Path | None = None, **more: str) -> dict[str, str]:
    """Variables for a process with SGLang on CPU; `config` switches adaptive-spec on."""
    path = [str(STAND_IN), str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    made = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_DISABLED_MODEL_ARCHS": ",".join(_other_models()),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        # An engine is three processes that import 5,000 modules each.
        "PYTHONDONTWRITEBYTECODE": "",
        "TORCHDYNAMO_DISABLE": "1",  # what it compiles here takes longer than all tests
        # Admit requests that memory does not last for.
        "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "16",
        "ADAPTIVE_SPEC_SGLANG_DWELL": "1",
    }
    made.pop("ADAPTIVE_SPEC_CONFIG", None)
    if config is not None:
        made["ADAPTIVE_SPEC_CONFIG"] = str(config)
    return made | more


@functools.cache
def _other_models() -> tuple[str, ...]:
    found = importlib.util.find_spec("sglang")
    folder = Path(next(iter(found.submodule_search_locations or ()))) / "srt" / "models"
    names = {path.stem for path in folder.glob("*.py")} | {
        path.name for path in folder.iterdir() if path.is_dir()
    }
    return tuple(sorted(name for name in names - SERVED_MODELS if not name.startswith("_")))


def arguments(models: dict[str, Path], folder: Path, algorithm: str | None) -> dict[str, Any]:
    """Keyword arguments of `sgl.Engine`: a CPU server of the bench target.

    `algorithm` is EAGLE, EAGLE3, STANDALONE or NGRAM (or a registered name), or None.
    """
    made: dict[str, Any] = {
        "model_path": str(models["target"]),
        "device": "cpu",
        "dtype": "float32",
        "attention_backend": "intel_amx",
        "mem_fraction_static": 0.4,
        "max_total_tokens": MAX_TOKENS,
        "max_running_requests": 8,
        "schedule_conservativeness": 0.05,
        "disable_cuda_graph": True,
        "random_seed": 1,
        "log_level": "info",
    }
    if algorithm is None:
        return made
    drafters = {"EAGLE": "eagle", "EAGLE3": "eagle3", "STANDALONE": "draft"}
    candidates = folder / "candidates.json"
    candidates.write_text(json.dumps(EVERY_K), encoding="utf-8")
    made |= {
        "speculative_algorithm": algorithm,
        "speculative_num_draft_tokens": KMAX + 1,
        "speculative_adaptive_config": str(candidates),
    }
    if algorithm in drafters:
        made |= {
            "speculative_draft_model_path": str(models[drafters[algorithm]]),
            "speculative_num_steps": KMAX,
            "speculative_eagle_topk": 1,
        }
    if algorithm in ("EAGLE", "EAGLE3"):
        made["speculative_adaptive"] = True
    if algorithm.endswith("NGRAM"):
        made["speculative_ngram_capacity"] = 100_000
    return made


def command_line(options: dict[str, Any]) -> list[str]:
    """The same as flags of `python -m sglang.launch_server`."""
    flags = []
    for name, value in options.items():
        flags.append("--" + name.replace("_", "-"))
        if value is not True:
            flags.append(str(value))
    return flags


def write_config(folder: Path, **keys: Any) -> Path:
    """A configuration file of adaptive-spec."""
    path = folder / "adaptive_spec.json"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path


@dataclass
class Job:
    """A request."""

    name: str
    prompt: str | list[int]
    options: dict[str, Any] = field(default_factory=dict)
    """Sampling parameters beside the defaults: greedy, 32 tokens, no end of text."""


@dataclass
class Answer:
    """What came back, and SGLang's own counters of it."""

    tokens: list[int]
    text: str
    reason: dict[str, Any]
    meta: dict[str, Any]


class Engine:
    """A real `sgl.Engine` in another process."""

    def __init__(self, options: dict[str, Any], variables: dict[str, str], folder: Path) -> None:
        """Start it; raises RuntimeError with the end of its log if it does not come up."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log_file = folder / "engine.log"
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "engine_process.py"), json.dumps(options)],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
            )
        assert self._receive() == "ready"

    def run(self, jobs: Sequence[Job]) -> dict[str, Answer]:
        """Serve the jobs, all handed over at once; the answer of each."""
        self._process.stdin.write(json.dumps([asdict(job) for job in jobs]).encode() + b"\n")
        self._process.stdin.flush()
        return {name: Answer(**answer) for name, answer in self._receive().items()}

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def close(self) -> None:
        """End the engine and all its processes."""
        if self._process.poll() is None:
            self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _receive(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(30)
            raise RuntimeError("the engine ended:\n" + self.log[-4000:])
        return json.loads(line)
