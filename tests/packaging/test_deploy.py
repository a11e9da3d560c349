"""The files of deploy/ fit together, and what they give to adaptive-spec is valid."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
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


def test_options_that_replicas_of_ray_serve_get_are_valid():
    [application] = yaml.safe_load((DEPLOY / "ray/serve.yaml").read_text())["applications"]
    [model] = application["args"]["llm_configs"]
    parse_config(model["engine_kwargs"]["additional_config"]["adaptive_spec"], source="ray")
    assert model["runtime_env"]["env_vars"]["VLLM_PLUGINS"] == "adaptive_spec"
    assert model["engine_kwargs"]["speculative_config"]["num_speculative_tokens"] > 0


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


def test_compose_opens_no_port_to_other_machines():
    services = yaml.safe_load((DEPLOY / "compose/docker-compose.yml").read_text())["services"]
    ports = [port for each in services.values() for port in each.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("file", SERVERS[1:])
def test_a_pod_is_not_root_has_no_token_and_asks_for_a_key(file):
    text = (DEPLOY / file).read_text()
    pod = list(mappings(yaml.safe_load(text)))
    users = [each["runAsUser"] for each in pod if each.get("runAsNonRoot") is True]
    assert users == [1000]
    # One for each container; production-stack gives its own to all.
    restricted = [each for each in pod if each.get("allowPrivilegeEscalation") is False]
    images = [each for each in pod if "image" in each]
    assert len(restricted) == max(1, len(images))
    assert all(each["capabilities"] == {"drop": ["ALL"]} for each in restricted)
    assert "automountServiceAccountToken: false" in text
    assert "vllm-api-key" in text
    assert not re.search(r"mountPath: /root|--api-key", text)
    config = json.loads(dict(itertools.pairwise(arguments(pod[0])))["--additional-config"])
    kept = config["adaptive_spec"]["state_directory"]
    mounts = [each.get("mountPath") for each in pod if "emptyDir" not in each]
    assert kept in mounts or kept.startswith("/data/")  # production-stack's claim
    volumes = {each["name"]: each for each in pod if "emptyDir" in each}
    assert not [each for each in pod if each.get("mountPath") == kept and each["name"] in volumes]


def mappings(value: object) -> Iterator[dict[str, Any]]:
    """Every object inside a document."""
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from mappings(each)


@pytest.mark.parametrize("file", [".github/workflows/check.yml", "deploy/ci/newest-engines.yml"])
def test_a_workflow_may_only_read(file):
    assert yaml.safe_load((ROOT / file).read_text())["permissions"] == {"contents": "read"}


def test_n_gram_drafts_on_a_gpu_are_made_there():
    """`ngram` turns async scheduling off (docs/vllm.md)."""
    for text in [(DEPLOY / file).read_text() for file in SERVERS]:
        assert '"method": "ngram"' not in text


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.sglang"])
def test_the_image_copies_every_folder_that_the_package_needs(file):
    copied = re.findall(r"^COPY (\w+) \1$", (DEPLOY / file).read_text(), re.MULTILINE)
    assert set(copied) == {"adaptive_spec", "adapters", "policies", "sim"}
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(copied) & set(ignored)


@pytest.mark.parametrize("file", ["argo/prove.yaml", "kserve/prove.yaml"])
def test_gates_of_canaries_give_options_that_prove_has(file):
    from adaptive_spec.commands.prove import prove

    def containers(value: object) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict) and "containers" in value:
            yield from value["containers"]
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, dict | list):
                yield from containers(each)

    [gate] = containers(yaml.safe_load((DEPLOY / file).read_text()))
    assert gate["command"] == ["adaptive-spec", "prove"]
    app = typer.Typer()
    app.command()(prove)
    command = typer.main.get_command(app)
    given = command.make_context("prove", list(gate["args"])).params
    assert given["at_least"] == -1.0
    assert given["admin"] is True
