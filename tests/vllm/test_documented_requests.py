"""Commands of README.md and docs/ that need a running vLLM, executed against one."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documented_commands import all_commands
from scenarios import prompts
from server import ADMIN_KEY, API_KEY, Server

pytestmark = pytest.mark.http

ADDRESS = "localhost:8000"
SHOWN = [
    command for command in all_commands(Path(__file__).resolve().parents[2]) if ADDRESS in command
]
OPERATOR = f"X-Adaptive-Spec-Key: {ADMIN_KEY}"
JSON = "content-type:application/json"


def arguments_of(command: str, server: Server) -> list[str]:
    """Words of a command, for this server and its model."""
    text = command.replace(f"http://{ADDRESS}", ADDRESS).replace(ADDRESS, server.url)
    values = {
        "TARGET_MODEL": "bench",
        "CHOOSE_ONE": ADMIN_KEY,
        "$ADAPTIVE_SPEC_ADMIN_KEY": ADMIN_KEY,
        "$INFERENCE_KEY": API_KEY,
        "$json": JSON,
        "$key": OPERATOR,
    }
    words = shlex.split(text)
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    return words


def test_the_documentation_shows_requests() -> None:
    assert len(SHOWN) >= 5


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("command", [each for each in SHOWN if each.startswith("curl ")])
def test_requests_are_answered(switched: Server, command: str) -> None:
    curl, *arguments = arguments_of(command, switched)
    options = [
        "--silent",
        "--show-error",
        "--fail-with-body",
        "-H",
        f"Authorization: Bearer {API_KEY}",
    ]
    done = subprocess.run([curl, *options, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    if "/v1/completions" in command:
        assert answer["usage"]["completion_tokens"] > 0
        return
    [engine] = answer["engines"]
    wanted = json.loads(arguments[arguments.index("-d") + 1]) if "-d" in arguments else {}
    assert wanted.items() <= engine["status"].items()


@pytest.mark.parametrize("command", [each for each in SHOWN if each.startswith("adaptive-spec ")])
def test_commands_read_the_server(switched: Server, command: str, tmp_path: Path) -> None:
    _, name, *arguments = arguments_of(command, switched)
    switched.ask("/v1/adaptive_spec", {"policy": "goodput", "options": {}})
    for prompt in prompts(2, 5):
        switched.complete(prompt)
    options, said, exits = {
        "top": (("--once",), "mean K", {0}),
        "breakeven": ((), "At 1 requests of ", {0}),
        "prove": (("--minutes", "0.05"), "no block yet", {3}),  # nobody asks meanwhile
    }[name]
    main = "from adaptive_spec.commands.cli import main; main()"
    run = [sys.executable, "-c", main, name, *arguments, *options, "--key", API_KEY]
    environment = os.environ | {"ADAPTIVE_SPEC_ADMIN_KEY": ADMIN_KEY}
    done = subprocess.run(run, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode in exits, done.stderr
    assert said in done.stdout
