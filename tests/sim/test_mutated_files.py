"""Damaged and hostile files of each kind: one line that names the file, or a use of what is left.

Twenty mutations of each kind are tried; with `-m long`, 1,000. `-s` prints how many were refused.
"""

import gzip
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import bounded_read, policies
from adaptive_spec.errors import AdaptiveSpecError, DataError
from adaptive_spec.policies.regression import load_model
from adaptive_spec.sim import hardware
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.advice.summary import observe
from adaptive_spec.sim.fit import read_steps as read_fit
from adaptive_spec.sim.hardware.from_trace import read_timed_steps
from adaptive_spec.sim.hardware.profile_file import read_hardware_profile
from adaptive_spec.sim.load.description import read_description
from adaptive_spec.sim.load.step_trace import read_step_trace
from adaptive_spec.sim.load.trace_files import read_azure, read_mooncake
from adaptive_spec.sim.logged_steps import LoggedTrace
from adaptive_spec.sim.report.page import write_report
from adaptive_spec.sim.sweep.results import read_results
from tests.refused import refused
from tests.sim.recorded_steps import NAME, step_row
from tests.sim.report.fake_results import results


def _trace() -> bytes:
    rows = []
    for step in range(80):
        batch = 1 + step // 20 % 2
        k = [(step + row) % 3 for row in range(batch)]
        rows.append(
            step_row(
                step,
                [f"r{step // 20}-{row}" for row in range(batch)],
                k,
                [min(each, step % 2) for each in k],
                available=k,
                possible=[2] * batch,
                contexts=[10] * batch,
                engine_k=2,
                confidence=[[0.5, None]] * batch,
                prefill_tokens=10 * (step % 10 == 0),
            )
        )
    rows[0]["capability"] = {"level": 2, "max_draft_tokens": 2}
    rows[5]["prompt_batches"] = [[1, 30, 0.01]]
    rows[7] |= {"task": [0] * len(rows[7]["ids"]), "task_names": {"0": "code"}}
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _npz(folder: Path, compression: int = zipfile.ZIP_STORED) -> bytes:
    random = np.random.default_rng(0)
    path = folder / "made.npz"
    arrays = {
        "accepted": random.integers(0, 3, 60),
        "request": np.repeat(np.arange(6), 10),
        "max_prob": random.random((60, 2)),
    }
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(f"{name}.npy", content.getvalue())
    return path.read_bytes()


def _shipped(package: ModuleType, name: str) -> bytes:
    return Path(package.__path__[0], name).read_bytes()


def _acceptance(path: Path) -> object:
    return load_acceptance([path], drafter_list="eagle", seed=0, kmax=4)


def _everything_of_a_trace(path: Path) -> None:
    found: AdaptiveSpecError | None = None
    for read in (
        lambda: observe([path]),
        lambda: read_timed_steps([path]),
        lambda: list(LoggedTrace(path.parent).steps()),
        lambda: list(read_step_trace(path)),
        lambda: read_fit(path.parent),
    ):
        try:
            read()
        except AdaptiveSpecError as error:
            _check(error)
            found = error
    if found is not None:
        raise found


def _report(path: Path) -> None:
    found = read_results(path)
    if path.with_name("drawn").exists():
        return  # figures take a second: of the first one that is read
    write_report(found, path.with_name("drawn"))


MOONCAKE = b"".join(
    b'{"timestamp": %d, "input_length": %d, "output_length": 5}\n' % (1000 * n, n)
    for n in range(1, 40)
)
AZURE = b"arrival_s,input_tokens,output_tokens\n" + b"".join(
    b"%d,%d,7\n" % (n, 1 + n) for n in range(40)
)
LISTS = b'{"eagle": [1, 2, 3, 2, 1, 4], "dataset": "code"}\n' * 12
LOAD = b"concurrency:\n  pieces:\n    - {seconds: 5, at: 2}\n    - {seconds: 5, from: 2, to: 8}\n"

Reader = Callable[[Path], Any]
KINDS: dict[str, tuple[str, Callable[[Path], bytes], Reader]] = {
    "step trace": (NAME, lambda folder: _trace(), _everything_of_a_trace),
    "step trace, gzip": (
        "steps.jsonl.gz",
        lambda folder: gzip.compress(_trace()),
        lambda path: observe([path]),
    ),
    "load, CSV": ("load.csv", lambda folder: AZURE, lambda path: list(read_azure(path))),
    "load, JSON lines": (
        "load.jsonl",
        lambda folder: MOONCAKE,
        lambda path: list(read_mooncake(path)),
    ),
    "load, description": ("load.yaml", lambda folder: LOAD, read_description),
    "acceptance, lists": ("lists.jsonl", lambda folder: LISTS, _acceptance),
    "acceptance, npz": ("steps.npz", _npz, _acceptance),
    **{
        f"acceptance, npz by {name}": ("steps.npz", partial(_npz, compression=number), _acceptance)
        for name, number in (
            ("deflate", zipfile.ZIP_DEFLATED),
            ("bzip2", zipfile.ZIP_BZIP2),
            ("LZMA", zipfile.ZIP_LZMA),
        )
    },
    "fit, npz": ("steps.npz", _npz, read_fit),
    "hardware profile": (
        "profile.json",
        lambda folder: _shipped(hardware, "profiles/h100-llama-8b.json"),
        read_hardware_profile,
    ),
    "fitted model": (
        "model.json",
        lambda folder: _shipped(policies, "regression_model.json"),
        load_model,
    ),
    "report": (
        "results.json",
        lambda folder: msgspec.json.encode(
            results({"goodput": {"closed:4": (110.0,)}}, {"closed:4": (90.0, 100.0, 105.0)})
        ),
        _report,
    ),
}


ODD_VALUES = (
    *(b"-1", b"0", b"255", b"1e308", b"9" * 40),
    *(b"NaN", b"null", b'"x"', b"[]", b"true", b"1e9"),
)


def _mutated(content: bytes, random: np.random.Generator) -> bytes:
    kind = int(random.integers(6))
    at, end = sorted(random.integers(0, len(content), 2).tolist())
    end = min(end, at + 200)
    if kind == 0:
        return content[:at] + bytes([int(random.integers(256))]) + content[at + 1 :]
    if kind == 1:
        return content[:at]
    if kind == 2:
        return content[:at] + content[end:]
    if kind == 3:
        return content[:end] + content[at:]
    if kind == 4:
        return content[:at] + random.bytes(20) + content[at:]
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", content))
    if not numbers:
        return content[:at]
    number = numbers[int(random.integers(len(numbers)))]
    chosen = ODD_VALUES[int(random.integers(len(ODD_VALUES)))]
    return content[: number.start()] + chosen + content[number.end() :]


def _check(error: AdaptiveSpecError) -> None:
    assert "\n" not in str(error), str(error)


@pytest.mark.parametrize("mutations", [20, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_used_or_refused_in_one_line(
    kind: str, mutations: int, tmp_path: Path
) -> None:
    name, content_of, read = KINDS[kind]
    content, path = content_of(tmp_path), tmp_path / "read" / name
    path.parent.mkdir()
    path.write_bytes(content)
    read(path)  # whole, it is used
    random, counted = np.random.default_rng(0), Counter[str]()
    for _ in range(mutations):
        path.write_bytes(_mutated(content, random))
        try:
            read(path)
        except AdaptiveSpecError as error:
            _check(error)
            counted["refused"] += 1
        else:
            counted["used"] += 1
    print(f"{kind}: {dict(counted)}")
    assert counted.total() == mutations
    assert counted["refused"] > mutations // 20


@pytest.fixture
def short_lines() -> Iterator[None]:
    """Lines of more than 2,000 bytes count as without an end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_read, "LONGEST_LINE", 2000)
        yield


@pytest.mark.parametrize("kind", [kind for kind, (name, _, _) in KINDS.items() if "json" in name])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.usefixtures("short_lines")
def test_a_line_without_an_end_is_one_line_of_error(
    kind: str, compressed: bool, tmp_path: Path
) -> None:
    name, content_of, read = KINDS[kind]
    if name.endswith(".json") or (compressed and name == NAME):
        pytest.skip("read whole up to a size, or never compressed under this name")
    content = content_of(tmp_path)
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    content += b" " * 5000
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if compressed or name.endswith(".gz") else content)
    with refused(DataError, "longer than 2,000 bytes", name):
        read(path)
