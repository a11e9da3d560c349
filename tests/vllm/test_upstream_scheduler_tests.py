"""vLLM's own tests of its scheduler, from its source distribution, with our classes in place.

Each difference to vLLM's own classes is listed below with its reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from engine_wheels import DownloadError, source_distribution

pytestmark = [pytest.mark.engine, pytest.mark.long]

SUPPORT = Path(__file__).parent / "support"
FILES = (
    "test_async_scheduler.py",
    "test_output.py",
    "test_prefix_replay.py",
    "test_priority_preemption_bug.py",
    "test_priority_scheduler_random.py",
    "test_scheduler.py",
)
OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "ffn_dim": 3072,
    "hidden_size": 768,
    "max_position_embeddings": 2048,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 50272,
    "word_embed_proj_dim": 768,
}
"""The model that the tests name, for which a hub would be asked; they read its configuration."""

DIFFERENT: dict[str, str] = {}
"""Test that fails with our classes -> why it may."""


@pytest.fixture(scope="module")
def tests(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to run vLLM's tests in."""
    try:
        source = source_distribution("vllm", "0.32.0", "tests")
    except DownloadError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "tests").symlink_to(source / "tests")
    model = folder / "facebook/opt-125m"
    shutil.copytree(models["target"], model, ignore=shutil.ignore_patterns("*.safetensors"))
    (model / "config.json").write_text(json.dumps(OPT))
    return folder


def outcomes(folder: Path, policy: str) -> dict[str, str]:
    """Test -> how it ended, with a policy; without one, with vLLM's own classes."""
    report = folder / f"{policy or 'vllm'}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "our_scheduler"]
    command += ["--rootdir", str(folder), "-c", os.devnull, f"--junit-xml={report}"]
    path = os.pathsep.join((str(folder), str(SUPPORT), *filter(None, sys.path)))
    subprocess.run(
        [*command, *(f"tests/v1/core/{file}" for file in FILES)],
        cwd=folder,
        env={**os.environ, "OUR_SCHEDULER_POLICY": policy, "PYTHONPATH": path},
        check=False,
        stdout=subprocess.DEVNULL,
    )
    ended = {}
    for case in ElementTree.parse(report).iter("testcase"):
        child = next(iter(case), None)
        ended[f"{case.get('name')}"] = "passed" if child is None else child.tag
    return ended


@pytest.mark.timeout(1800)
def test_vllms_own_tests_pass_as_with_vllms_own_classes(tests: Path) -> None:
    stock = outcomes(tests, "")
    assert sum(ended == "passed" for ended in stock.values()) > 250
    for policy in ("static", "goodput"):
        ours = outcomes(tests, policy)
        assert ours.keys() == stock.keys()
        different = {
            name: f"{stock[name]}, {ended} with {policy}"
            for name, ended in ours.items()
            if ended != stock[name] and name.partition("[")[0] not in DIFFERENT
        }
        assert different == {}
