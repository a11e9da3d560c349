"""vLLM's own tests of its scheduler, from its source distribution, with our classes in place.

Our classes are built where a server would have them: in each test whose configuration speculates.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from engine_wheels import DownloadError, source_distribution

pytestmark = [pytest.mark.engine, pytest.mark.long]

SUPPORT = Path(__file__).parent / "support"
FILES = (
    "test_async_scheduler.py",
    "test_deferred_block_free.py",
    "test_mamba_align_chunk_split.py",
    "test_output.py",
    "test_prefix_replay.py",
    "test_priority_preemption_bug.py",
    "test_priority_scheduler_random.py",
    "test_scheduler.py",
    "test_swa_inflight_window_free.py",
    "test_worker_slot_overflow.py",
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
"""The model that most tests name; they read its configuration only. Tests with images name models
that are not there, and fail with vLLM's own classes too."""

SETTINGS = {"static": {"policy": "static"}, "goodput": {"policy": "goodput"}}

_NEVER_BUILT = "makes a scheduler without its constructor, which is what attaches ours"
_ABORTED = "test_abort_request_when_structured_output_fsm_cannot_advance"
DIFFERENT: dict[tuple[str, str], str] = {
    (setting, f"{file}::{_ABORTED}"): _NEVER_BUILT
    for setting in SETTINGS
    for file in ("test_async_scheduler", "test_scheduler")
}
"""Setting and test that ends differently with our classes -> the reason."""


class Ended(NamedTuple):
    """How a test ended, and how many schedulers of ours it had built."""

    how: str
    ours: int


@pytest.fixture(scope="module")
def tests(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to run vLLM's tests in."""
    try:
        source = source_distribution("vllm", "0.32.0", "tests")
    except DownloadError as error:
        pytest.skip(f"vLLM's tests are in its source distribution, which can't be had: {error}")
    folder = tmp_path_factory.mktemp("vllm")
    (folder / "tests").symlink_to(source / "tests")
    for name in ("opt-125m", "opt-350m"):
        model = folder / "facebook" / name
        shutil.copytree(models["target"], model, ignore=shutil.ignore_patterns("*.safetensors"))
        (model / "config.json").write_text(json.dumps(OPT))
    return folder


def outcomes(folder: Path, name: str) -> dict[str, Ended]:
    """Test -> how it ended with a setting; `vllm` stands for vLLM's own classes."""
    report = folder / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "our_scheduler"]
    command += ["--rootdir", str(folder), "-c", os.devnull, f"--junit-xml={report}"]
    setting = json.dumps(SETTINGS[name]) if name in SETTINGS else ""
    path = os.pathsep.join((str(folder), str(SUPPORT), *filter(None, sys.path)))
    subprocess.run(
        [*command, *(f"tests/v1/core/{file}" for file in FILES)],
        cwd=folder,
        env={**os.environ, "OUR_SCHEDULER": setting, "PYTHONPATH": path},
        check=False,
        stdout=subprocess.DEVNULL,
    )
    ended = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [part.tag for part in case if part.tag in ("error", "failure", "skipped")]
        ours = case.find("properties/property[@name='ours']")
        ended[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = Ended(
            bad[0] if bad else "passed", 0 if ours is None else int(ours.get("value", "0"))
        )
    return ended


@pytest.fixture(scope="module")
def stock(tests: Path) -> dict[str, Ended]:
    ended = outcomes(tests, "vllm")
    assert sum(one.how == "passed" for one in ended.values()) > 270
    return ended


@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", SETTINGS)
def test_they_end_as_with_vllms_classes_but_for_what_is_listed(
    tests: Path, stock: dict[str, Ended], setting: str
) -> None:
    ours = outcomes(tests, setting)
    assert ours.keys() == stock.keys()
    assert sum(one.ours > 0 for one in ours.values()) >= 25
    different = {name for name, one in ours.items() if one.how != stock[name].how}
    assert different == {name for other, name in DIFFERENT if other == setting}
