"""A real `vllm serve` with the plugin, in its own processes, reached over HTTP."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engines import ENVIRONMENT, counts_drafts_per_request, speculative_config

from tests.engine_processes import free_port, running_server

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[2]
REPAIR = """
from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply
from processors import pretend_as_told
pretend_as_told()
apply()
"""
"""Without, a sampled request gives the greedy ones of its batch wrong tokens (vllm#55005)."""
START_SECONDS = 1200
API_KEY = "bench-key"
ADMIN_KEY = "the-key-of-the-operator"
AT_START = {"mode": "on", "policy": "switchable_policies:RandomPolicy"}
"""Tests switch the shared server back to this."""


class Server(NamedTuple):
    """A running server, and where it writes."""

    url: str
    status: Path
    trace: Path
    control: Path
    log: Path
    process: subprocess.Popen[bytes]

    def ask(
        self, path: str, body: Any = None, key: str | None = API_KEY, admin: str = ADMIN_KEY
    ) -> Any:
        """GET, or POST of a JSON body; the answer, decoded if it is JSON.

        Raises urllib.error.HTTPError.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if admin:
            headers["X-Adaptive-Spec-Key"] = admin
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=300) as reply:
            text = reply.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def refusal(
        self, path: str, body: Any = None, key: str | None = API_KEY, admin: str = ADMIN_KEY
    ) -> tuple[int, str]:
        """Status and text of a request that is refused."""
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.ask(path, body, key, admin)
        return caught.value.code, caught.value.read().decode()

    def complete(self, prompt: str, **options: Any) -> dict[str, Any]:
        """A greedy completion."""
        body = {
            "model": "bench",
            "prompt": prompt,
            "max_tokens": 48,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        answer: dict[str, Any] = self.ask("/v1/completions", body | options)
        return answer

    def counters(self) -> dict[str, Any]:
        """What the status file says."""
        found: dict[str, Any] = json.loads(self.status.read_text())
        return found

    def engine(self) -> dict[str, Any]:
        """Status of the one engine, by the endpoint."""
        [engine] = self.ask("/v1/adaptive_spec")["engines"]
        status: dict[str, Any] = engine["status"]
        return status

    def wait_for(self, read: Callable[[], Any], what: str) -> Any:
        """A value that isn't empty; short completions keep the engine at work meanwhile."""
        for _ in range(120):
            if found := read():
                return found
            self.complete("x", max_tokens=4)
            time.sleep(0.25)
        pytest.fail(f"{what}: waited in vain; {self.counters()}")


@contextmanager
def serving(
    models: dict[str, Path],
    folder: Path,
    adaptive: dict[str, Any],
    *arguments: str,
    method: str = "draft_model",
    plugin: str = "",
    first: str = "",
) -> Iterator[Server]:
    """A server with these `adaptive_spec` settings besides its files.

    Args:
        models: folders of the bench models.
        folder: for the server's files.
        adaptive: settings.
        arguments: of `vllm serve` besides the usual ones.
        method: of speculation.
        plugin: a second one beside ours, ``module:function``, called in each process.
        first: code that each process begins with.
    """
    config = {
        "status_file": str(folder / "status.json"),
        "trace": {"directory": str(folder / "trace")},
        "control_file": str(folder / "control.json"),
        "memory_guard": False,
    }
    log = folder / "server.log"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(Path(sys.executable).parent / "vllm"),
        *("serve", str(models["target"]), "--host", "127.0.0.1", "--port", str(port)),
        *("--served-model-name", "bench", "--dtype", "float32", "--max-model-len", "400"),
        *("--max-num-seqs", "12", "--max-num-batched-tokens", "96", "--enforce-eager"),
        *("--num-gpu-blocks-override", "16", "--block-size", "32", "--seed", "0"),
        *("--api-key", API_KEY),
        *(("--per-request-spec-decode-metrics", "summary") if counts_drafts_per_request() else ()),
        *("--speculative-config", json.dumps(speculative_config(models, method))),
        *("--additional-config", json.dumps({"adaptive_spec": config | adaptive})),
        *arguments,
    ]
    (folder / "sitecustomize.py").write_text(f"{first}\n{REPAIR}")
    name = plugin.partition(":")[0]
    if plugin:
        place = folder / f"{name}-0.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        (place / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {plugin}\n")
    path = [str(folder), str(SUPPORT), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | ENVIRONMENT | {"ADAPTIVE_SPEC_ADMIN_KEY": ADMIN_KEY}
    environment |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_PLUGINS": ",".join(filter(None, ("adaptive_spec", name))),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "200",  # ms
    }
    with running_server(command, environment, url, log, START_SECONDS) as process:
        yield Server(
            url, folder / "status.json", folder / "trace", folder / "control.json", log, process
        )
