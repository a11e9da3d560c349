"""The server: its command line, its environment, and the files of a run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .model import FOLDER

ROOT = Path(__file__).resolve().parents[1]

KMAX = 6
MAX_NUM_SEQS = 16
NGRAM = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}
"""Drafts are copied from behind an earlier match of the newest 2 to 4 tokens."""


@dataclass(frozen=True)
class Files:
    """Where a run reads and writes."""

    models: Path
    output: Path

    @property
    def status(self) -> Path:
        """The server's status file."""
        return self.output / "status.json"

    @property
    def trace(self) -> Path:
        """Folder of the server's step trace."""
        return self.output / "trace"

    @property
    def answers(self) -> Path:
        """The page with all answers."""
        return self.output / "answers.html"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.output / "server.log"


def serve_command(port: int, files: Files) -> list[str]:
    """Return the command line of the server."""
    return [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"),
        str(files.models / FOLDER),
        *("--served-model-name", FOLDER, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--seed", "0"),
        *("--max-model-len", "1024", "--max-num-seqs", str(MAX_NUM_SEQS)),
        *("--no-enable-prefix-caching", "--disable-uvicorn-access-log"),
        *("--speculative-config", json.dumps(NGRAM | {"num_speculative_tokens": KMAX})),
        *("--additional-config", json.dumps({"adaptive_spec": our_config(files)})),
    ]


def our_config(files: Files) -> dict[str, Any]:
    """Return the plugin's configuration: defaults, and places to write to."""
    return {
        "status_file": str(files.status),
        "trace": {"directory": str(files.trace)},
    }


def server_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the server's environment, in which it is quiet while idle.

    One core is left free of model threads: vLLM's engine process
    spins while it waits for its worker, most of all when it speculates, and would keep such a
    thread, and with it the others, waiting.
    """
    own = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(max((os.cpu_count() or 1) - 1, 1)),
        "OMP_WAIT_POLICY": "passive",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "adaptive_spec",
    }
    # A configuration for other servers must not take the place of ours, and without bytecode on
    # disk each process of a server spends 15 s of CPU on compiling vLLM anew.
    left_out = ("ADAPTIVE_SPEC_CONFIG", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in environ.items() if name not in left_out}
    paths = [str(ROOT), environ.get("PYTHONPATH", "")]
    return {**inherited, **own, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
