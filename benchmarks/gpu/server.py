"""One answer over HTTP from `vllm serve` with adaptive-spec, on the small drafts.

The two drafts of 1B parameters serve as target and drafter: they fit beside the engines of the
stage, and the path from the command line to `/metrics` is the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from .fleet import ENVIRONMENT, ROOT

PORT = 8199
SECONDS = 240.0
KV_BYTES = 1 << 30


def answer(models: str) -> dict[str, Any]:
    """Start a server, ask it once, read its metrics, stop it.

    Returns:
        Seconds to readiness, tokens of the answer and our metrics' names; `error` if it failed.
    """
    speculation = {
        "method": "draft_model",
        "model": f"{models}/draft_poor",
        "num_speculative_tokens": 3,
    }
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", f"{models}/draft"),
        *("--port", str(PORT), "--enforce-eager", "--max-model-len", "1024"),
        *("--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", str(KV_BYTES)),
        *("--attention-backend", "FLASH_ATTN"),
        *("--speculative-config", json.dumps(speculation)),
        *("--additional-config", json.dumps({"adaptive_spec": {}})),
    ]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    began = time.monotonic()
    log = Path(models) / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
        )
        try:
            return _ask(process, models, began)
        except (OSError, ValueError, KeyError, TimeoutError) as error:
            tail = log.read_text(errors="replace")[-1500:]
            return {"error": f"{type(error).__name__}: {error}\n{tail}"}
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _ask(process: subprocess.Popen[bytes], models: str, began: float) -> dict[str, Any]:
    while True:
        with suppress(urllib.error.URLError, ConnectionError):
            _get("/health")
            break
        if process.poll() is not None or time.monotonic() - began > SECONDS:
            raise TimeoutError(f"not ready; status {process.poll()}")
        time.sleep(0.5)
    ready = time.monotonic() - began
    body = {"model": f"{models}/draft", "prompt": "def ", "max_tokens": 32, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        usage = json.loads(response.read())["usage"]
    names = {
        line.split("{")[0]
        for line in _get("/metrics").splitlines()
        if line.startswith("adaptive_spec")
    }
    return {
        "ready_seconds": round(ready, 1),
        "tokens": usage["completion_tokens"],
        "metrics": sorted(names),
    }


def _get(path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=10) as response:
        found: bytes = response.read()
    return found.decode()
