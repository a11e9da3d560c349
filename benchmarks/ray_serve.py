"""Ray Serve LLM: replicas start, scale up, switch and roll back while clients ask.

    pip install "ray[serve]" pandas pyarrow    # in vLLM's environment; ray[llm] pins another vLLM
    python -m benchmarks.ray_serve FOLDER

The options are those of deploy/ray/serve.yaml, with a bench model on the CPU. Clients send the same
greedy requests throughout: two replicas start and write what they have learned; a third one starts
from their objects; the control file switches all off and on; a configuration without the plugin
rolls back. Ends with status 1 if a request is lost, if a greedy answer differs, or if a replica
does not do what a phase is about.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from .bench_pair.build import build
from .bench_pair.prompts import load_prompts
from .judge.figures import markdown

SERVE_YAML = Path(__file__).resolve().parents[1] / "deploy" / "ray" / "serve.yaml"
CLIENTS = 4
PAUSE = 1.0
"""Seconds between an answer and the next request: replicas that start need the cores, too."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
_STARTED = re.compile(r"starts from (\d+) objects under .*, (\d+) of them of servers of the same")


class Clients:
    """Greedy requests, each text again and again, by threads that never stop.

    Attributes:
        phase: that answers count in.
        answered: requests by phase.
        lost: errors.
        answers: by text, all that differ.
    """

    def __init__(self, url: str) -> None:
        self.phase = ""
        self.answered: Counter[str] = Counter()
        self.lost: list[str] = []
        self.answers: dict[str, set[str]] = defaultdict(set)
        self._url, self._ended = url, threading.Event()
        texts = [text[:60] for kind in load_prompts().values() for text in kind[:2]]
        self._threads = [
            threading.Thread(target=self._ask, args=(texts[n:] + texts[:n],))
            for n in range(CLIENTS)
        ]

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait for the last answers."""
        self._ended.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _ask(self, texts: list[str]) -> None:
        for text in itertools.cycle(texts):
            if self._ended.is_set():
                return
            body = {"model": "llama-8b", "prompt": text, "max_tokens": 48, "temperature": 0}
            request = urllib.request.Request(
                f"{self._url}/v1/completions",
                json.dumps(body | {"ignore_eos": True}).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=300) as reply:
                    self.answers[text].add(json.load(reply)["choices"][0]["text"])
                self.answered[self.phase] += 1
            except (OSError, ValueError, LookupError) as error:
                self.lost.append(f"{self.phase}: {type(error).__name__}: {error}")
            self._ended.wait(PAUSE)


class Front:
    """An application of Ray Serve on a local cluster.

    Args:
        folder: of the models, the configuration, and all that replicas write.
        port: of the front.
    """

    def __init__(self, folder: Path, port: int) -> None:
        models = build(folder / "models", ("target", "draft"))
        self.folder, self._port = folder, port
        self.state, self.control = folder / "state", folder / "control.json"
        self._config: dict[str, Any] = yaml.safe_load(SERVE_YAML.read_text())
        self._config |= {"proxy_location": "HeadOnly", "http_options": {"port": port}}
        [self._application] = self._config["applications"]
        [model] = self._application["args"]["llm_configs"]
        self._arguments: dict[str, Any] = model["engine_kwargs"]
        model["model_loading_config"]["model_source"] = str(models["target"])
        model["accelerator_config"] = {"kind": "cpu"}
        self._arguments |= {"dtype": "float32", "max_model_len": 256, "enforce_eager": True}
        self._arguments["speculative_config"] = {
            "method": "draft_model",
            "model": str(models["draft"]),
            "num_speculative_tokens": 4,
        }
        self._arguments["additional_config"]["adaptive_spec"] |= {
            "state": str(self.state),
            "control_file": str(self.control),
            "status_file": str(folder / "status-{pid}.json"),
            "fail_open": {"max_decision_ms": 60_000},
        }

    def deploy(self) -> None:
        """Let `serve run` apply the configuration."""
        file = self.folder / "serve.yaml"
        file.write_text(yaml.safe_dump(self._config))
        serve = Path(sys.executable).with_name("serve")
        subprocess.run([serve, "run", "--non-blocking", file], check=True)

    def scale(self, replicas: int) -> None:
        """Set the number of replicas; those that run go on."""
        self._application["deployments"] = [{"name": self.model, "num_replicas": replicas}]
        self.deploy()

    def roll_back(self) -> None:
        """Start replicas without the plugin in place of all."""
        del self._arguments["additional_config"]
        self.deploy()

    @property
    def model(self) -> str:
        """Name of the deployment whose replicas are vLLM's."""
        [name] = [each for each in self._deployments() if each.startswith("LLMServer")]
        return name

    def _deployments(self) -> dict[str, Any]:
        from ray import serve

        application = serve.status().applications.get("llm")
        return {} if application is None else application.deployments

    def replicas(self) -> int:
        """Return the replicas of the model that run; 0 while any deployment changes."""
        found = self._deployments()
        if not found or any(each.status != "HEALTHY" for each in found.values()):
            return 0
        return int(found[self.model].replica_states.get("RUNNING", 0))

    def modes(self) -> dict[int, str]:
        """Return the plugin's mode in each engine that lives, by process id."""
        found = {}
        for file in self.folder.glob("status-*.json"):
            number = int(file.stem.partition("-")[2])
            if Path("/proc", str(number)).exists():
                found[number] = json.loads(file.read_text())["mode"]
        return found

    def objects(self) -> int:
        """Return the replicas that have written what they learned."""
        return len(list(self.state.glob("*.json")))

    def starts(self) -> list[tuple[int, int]]:
        """Return the objects, and those of the same kind, that each replica has started from."""
        import ray

        logs = Path(ray._private.worker._global_node.get_logs_dir_path())
        texts = [file.read_text(errors="replace") for file in logs.glob("worker-*")]
        return [(int(n), int(alike)) for text in texts for n, alike in _STARTED.findall(text)]


def wait(what: str, reached: Callable[[], bool], seconds: float = 1800.0) -> float:
    """Return the seconds until a condition holds. Raises SystemExit if it does not."""
    began = time.monotonic()
    while not reached():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"not reached within {seconds:.0f} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - began


def walk(front: Front, clients: Clients) -> list[list[str]]:
    """Go through all phases; return a row of what was seen in each."""
    rows: list[list[str]] = []

    def phase(name: str) -> None:
        clients.phase = name

    def note(text: str) -> None:
        wait("answers", lambda: clients.answered[clients.phase] >= 2 * CLIENTS)
        rows.append([clients.phase, str(clients.answered[clients.phase]), text])
        print(*rows[-1], sep=": ", flush=True)

    def switch(mode: str) -> None:
        phase(f"switch {mode}")
        beside = front.control.with_suffix(".new")
        beside.write_text(json.dumps({"mode": mode}))
        beside.rename(front.control)
        took = wait(mode, lambda: list(front.modes().values()) == [mode] * 3)
        note(f"in all three after {took:.1f} s")

    phase("start")
    front.deploy()
    took = wait("two replicas", lambda: front.replicas() == 2)
    clients.start()
    wait("both on", lambda: list(front.modes().values()) == ["on"] * 2)
    first = set(front.modes())
    learned = wait("their objects", lambda: front.objects() == 2)
    note(f"two replicas after {took:.0f} s; both had written what they learned {learned:.0f} s on")
    assert not front.starts(), "the first ones have nothing to start from"
    phase("scale up")
    front.scale(3)
    took = wait("three replicas", lambda: front.replicas() == 3 and len(front.modes()) == 3)
    assert first < set(front.modes()), "the first two go on"
    [(objects, alike)] = front.starts()
    assert objects == alike == 2
    note(f"the third after {took:.0f} s, from the objects of the first two, which went on")
    switch("off")
    switch("on")
    phase("roll back")
    front.roll_back()
    took = wait("without the plugin", lambda: not front.modes() and front.replicas() == 3)
    note(f"three without the plugin after {took:.0f} s")
    return rows


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8123)
    given = parser.parse_args()
    import ray

    os.environ |= ENVIRONMENT
    given.folder.mkdir(parents=True)
    front = Front(given.folder.resolve(), given.port)
    clients = Clients(f"http://127.0.0.1:{given.port}")
    context = ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    os.environ["RAY_ADDRESS"] = context.address_info["address"]
    try:
        rows = walk(front, clients)
    finally:
        clients.end()
        ray.shutdown()
    print(markdown(["phase", "answers", "seen"], rows))
    differing = sum(len(each) > 1 for each in clients.answers.values())
    print(
        f"{clients.answered.total()} requests answered, {len(clients.lost)} lost; of "
        f"{len(clients.answers)} texts {differing} with answers that differ"
    )
    print("\n".join(clients.lost[:5]))
    return 1 if clients.lost or differing else 0


if __name__ == "__main__":
    sys.exit(main())
