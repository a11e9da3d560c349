"""What README.md says about commands, options and versions is what the code does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.commands.cli import with_installed_commands
from adaptive_spec.config import parse_config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_generated_tables_are_in_step():
    command = [sys.executable, str(ROOT / "scripts" / "readme.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_version_table_is_the_adapters():
    section = README.partition("<!-- versions -->\n")[2].partition("\n<!-- /versions -->")[0]
    assert section == VERSIONS.markdown()


def test_every_command_is_described_and_no_other():
    described = set(re.findall(r"^\| `adaptive-spec (\w+)", README, re.MULTILINE))
    assert described == set(typer.main.get_command(with_installed_commands()).commands)


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"check", "demo", "test"} <= named <= targets


def test_continuous_integration_runs_its_test_command():
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make test ", README, re.MULTILINE)


@pytest.mark.parametrize("shown", re.findall(r"--additional-config '(.*?)'", README))
def test_configuration_it_shows_is_valid(shown):
    parse_config(json.loads(shown)["adaptive_spec"], source="README")


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_files_it_links_to_exist(link):
    assert (ROOT / link).is_file()
