"""The servers that are compared. They differ in nothing but speculation."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.judge.arms import GOODPUT, NONE, Arm
from benchmarks.judge.arms import parse_arm as judge_arm

from .errors import DemoError
from .model import FOLDER

ROOT = Path(__file__).resolve().parents[1]

KMAX = 6
MAX_NUM_SEQS = 16
OURS = GOODPUT
NGRAM = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}
"""Drafts are what followed the newest 2 to 4 tokens before, in every arm that drafts."""
DEFAULT_ARMS = (NONE, "k2", "k6", OURS)


@dataclass(frozen=True)
class Files:
    """Where a run reads and writes."""

    models: Path
    output: Path

    @property
    def status(self) -> Path:
        """Our server's status file."""
        return self.output / "status.json"

    @property
    def trace(self) -> Path:
        """Folder of our server's step trace."""
        return self.output / "trace"

    def log(self, arm: Arm) -> Path:
        """What a server prints."""
        return self.output / f"server-{arm.name}.log"


def parse_arm(name: str) -> Arm:
    """The judge's arm of this name: `none`, `goodput`, or `k1` to the largest K.

    Raises DemoError for any other name.
    """
    if name in (NONE, OURS) or (re.fullmatch(r"k\d+", name) and 1 <= int(name[1:]) <= KMAX):
        return judge_arm(name)
    raise DemoError(f"unknown arm {name!r}: there are {NONE}, {OURS} and k1 to k{KMAX}")


def serve_command(arm: Arm, port: int, files: Files) -> list[str]:
    """The command line of a server."""
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"),
        str(files.models / FOLDER),
        *("--served-model-name", FOLDER, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--seed", "0"),
        *("--max-model-len", "1024", "--max-num-seqs", str(MAX_NUM_SEQS)),
        *("--no-enable-prefix-caching", "--disable-uvicorn-access-log"),
    ]
    if arm.name != NONE:
        speculation = NGRAM | {"num_speculative_tokens": arm.k or KMAX}
        command += ["--speculative-config", json.dumps(speculation)]
    if arm.policy:
        command += ["--additional-config", json.dumps({"adaptive_spec": our_config(files)})]
    return command


def our_config(files: Files) -> dict[str, Any]:
    """What is given to our plugin: defaults, and places to write to."""
    return {
        "policy": OURS,
        "status_file": str(files.status),
        "trace": {"directory": str(files.trace)},
    }


def model_threads() -> int:
    """Threads a server computes with."""
    return max((os.cpu_count() or 1) - 1, 1)


def server_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of all servers.

    It makes them quiet while idle. One core is left free of model threads: vLLM's engine process
    spins while it waits for its worker, most of all when it speculates, and would keep such a
    thread, and with it the others, waiting.
    """
    own = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(model_threads()),
        "OMP_WAIT_POLICY": "passive",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "adaptive_spec",
    }
    # A configuration for other servers must not switch our plugin on in every arm, and without
    # bytecode on disk each process of a server spends 15 s of CPU on compiling vLLM anew.
    left_out = ("ADAPTIVE_SPEC_CONFIG", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in environ.items() if name not in left_out}
    paths = [str(ROOT), environ.get("PYTHONPATH", "")]
    return {**inherited, **own, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
