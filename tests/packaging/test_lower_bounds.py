"""The oldest versions that pyproject.toml allows do what the newest do."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAVED = """
import sys
from pathlib import Path
from adaptive_spec import Capability, Config, Controller, Level, build_policy

def made():
    config = Config(state_directory=sys.argv[1])
    identity = {"model": "m"}
    engine = Capability(level=Level.FULL, max_draft_tokens=5)
    return Controller(build_policy("goodput"), engine, config, identity=identity)

from adaptive_spec.testing.fake_engine import FakeEngine
first = made()
FakeEngine(first.capability, signal=False).run(first.policy, 60)
first.close()
[file] = Path(sys.argv[1]).glob("*.json")
second = made()
assert second.policy.state() == first.policy.state() != {}, second.status()
assert not second.status()["output_failures"]
"""


def oldest(requirement: str) -> str:
    found = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement)
    assert found, f"{requirement}: a lower bound is expected"
    return f"{found[1]}=={found[2]}"


@pytest.mark.slow
def test_the_oldest_versions_allowed_work(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = [oldest(each) for each in project["dependencies"]]
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(python), *command], capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *bounds)
    commands = ("--help",), ("policies",), ("doctor",), ("config", '{"mode": "shadow"}')
    for command in commands:
        assert run("-m", "adaptive_spec", *command)
    shown = run("-m", "adaptive_spec", "replay", "--load", "closed:2", "--tokens", "200", "--json")
    assert json.loads(shown)
    run("-c", SAVED, str(tmp_path / "state"))
