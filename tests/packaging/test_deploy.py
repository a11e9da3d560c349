"""The files of deploy/ fit together, and what they give to adaptive-spec is valid."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.config import parse_config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SERVERS = [
    "compose/docker-compose.yml",
    "helm/llm-d.yaml",
    "helm/production-stack.yaml",
    "kserve/inference-service.yaml",
    "kubernetes/unmodified-image.yaml",
]
EXECUTED = {row.version for row in VERSIONS.rows}


def arguments(value: object) -> list[str]:
    """Every list of strings with `--additional-config` inside a document."""
    if isinstance(value, list) and "--additional-config" in value:
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inner if (found := arguments(each))), [])


@pytest.mark.parametrize("file", SERVERS)
def test_options_that_a_server_gets_are_valid(file):
    given = arguments(yaml.safe_load((DEPLOY / file).read_text()))
    options = dict(itertools.pairwise(given))
    text = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", options["--additional-config"])
    parse_config(json.loads(text)["adaptive_spec"], source=file)
    assert json.loads(options["--speculative-config"])["num_speculative_tokens"] > 0


@pytest.mark.parametrize("file", [*SERVERS, "Dockerfile"])
def test_the_version_of_vllm_is_one_that_was_executed(file):
    text = (DEPLOY / file).read_text()
    versions = re.findall(r'(?:vllm-openai:v|adaptive-spec-vllm:|tag: ")(\d+\.\d+\.\d+)', text)
    assert versions
    assert set(versions) <= EXECUTED


def test_files_that_compose_mounts_exist():
    folder = DEPLOY / "compose"
    services = yaml.safe_load((folder / "docker-compose.yml").read_text())["services"]
    mounts = [m.split(":")[0] for each in services.values() for m in each.get("volumes", ())]
    files = [mount for mount in mounts if mount.startswith(".")]
    assert files
    for file in files:
        assert (folder / file).resolve().is_file(), file


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.sglang"])
def test_the_image_copies_every_folder_that_the_package_needs(file):
    copied = re.findall(r"^COPY (\w+) \1$", (DEPLOY / file).read_text(), re.MULTILINE)
    assert set(copied) == {"adaptive_spec", "adapters", "policies", "sim"}
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(copied) & set(ignored)
