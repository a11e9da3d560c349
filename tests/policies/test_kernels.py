"""Kernels are compiled once, kept on disk where nobody else can write, and fail in one line."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.errors import PolicyError
from adaptive_spec.policies import kernels
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.kernels import (
    Kernel,
    Vector,
    cache_folder,
    compile_function,
    load_kernels,
    private,
)
from adaptive_spec.step import Capability, Level
from adaptive_spec.testing.fake_engine import FakeEngine


def run(script: str, **environment: str) -> list[str]:
    """Lines that a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# ------------------------------------------------------------- declare and call


@pytest.fixture
def _own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep kernels that a test declares from the other tests."""
    monkeypatch.setattr(kernels, "_declared", [])


@pytest.mark.slow
def test_declaring_does_not_import_numba_and_the_first_call_compiles_all_that_is_called() -> None:
    script = """
import sys
import numpy as np
from adaptive_spec.policies.kernels import Kernel, Limits, Vector

@Kernel
def twice(value: float) -> float:
    return 2.0 * value

@Kernel
def double(values: Vector, limit: Limits) -> None:
    for i in range(len(values)):
        values[i] = twice(values[i]) if i < limit[i] else -1.0

values = np.ones(2)
print("numba" in sys.modules)
double(values, np.array([1, 0], dtype=np.int32))
print("numba" in sys.modules, values.tolist())
"""
    assert run(script) == ["False", "True [2.0, -1.0]"]


@pytest.mark.usefixtures("_own")
def test_what_cannot_be_compiled_is_one_line_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []
    compiled = kernels.compile_function
    monkeypatch.setattr(
        kernels, "compile_function", lambda *given: tried.append(given) or compiled(*given)
    )

    @Kernel
    def faulty(value: float) -> float:
        return value + "no number"

    for call in (load_kernels, lambda: faulty(1.0)):
        with pytest.raises(PolicyError, match=r"^numba, which compiles decisions, fails: ") as said:
            call()
        assert "\n" not in str(said.value)
    assert len(tried) == 1


# ------------------------------------------------------------------- in a server


@pytest.mark.slow
def test_a_server_compiles_before_it_serves_and_before_it_switches() -> None:
    script = """
from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.operation.run_time_switch import parse_switch
from adaptive_spec.policies import goodput, kernels

engine = Capability(level=Level.FULL, max_draft_tokens=4)
served = Controller.from_config(Config(policy=POLICY), engine)
print(sum(each._compiled is not None for each in kernels._declared) / len(kernels._declared))
served.switch(parse_switch({"policy": "goodput"}, source="request"))
print(sum(each._compiled is not None for each in kernels._declared) / len(kernels._declared))
"""
    assert run(f"POLICY = 'goodput'{script}") == ["1.0", "1.0"]
    assert run(f"POLICY = 'static'{script}") == ["0.0", "1.0"]


_SERVES = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from adaptive_spec import Capability, Config, Controller, Level, PolicyError
from adaptive_spec.operation.run_time_switch import parse_switch
from tests import steps

engine = Capability(level=Level.FULL, max_draft_tokens=4)
served = Controller.from_config(Config(policy=sys.argv[1]), engine)
if sys.argv[2:]:
    try:
        served.switch(parse_switch({"policy": sys.argv[2]}, source="request"))
    except PolicyError as error:
        print(error)
for step in range(8):
    plan = served.plan(steps.context(2, capability=engine, step=step, now=0.01 * step))
print(plan.mode.name, served.policy.name, sum(served.counters.failures.values()))
"""


@pytest.fixture
def broken_numba(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine on which numba is installed and broken."""
    (tmp_path / "numba.py").write_text("raise ImportError('numba needs\\nanother numpy')\n")
    return {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}


def serve(*arguments: str, **environment: str) -> list[str]:
    return run(f"import sys; sys.argv = {['-c', *arguments]}\n" + _SERVES, **environment)


def test_a_server_whose_numba_is_broken_runs_the_engines_k_and_says_so_once(
    broken_numba: dict[str, str],
) -> None:
    said, benched, last = serve("goodput", **broken_numba)
    assert said == (
        "adaptive_spec: plan raised PolicyError: numba, which compiles decisions, fails: "
        "ImportError: numba needs another numpy; the engine's own K is used"
    )
    assert "benched" in benched
    assert last == "ENGINE goodput 5"


def test_a_policy_without_kernels_needs_no_numba(broken_numba: dict[str, str]) -> None:
    assert serve("static", **broken_numba) == ["ON static 0"]


def test_a_switch_to_what_cannot_be_compiled_is_refused(broken_numba: dict[str, str]) -> None:
    refused, last = serve("static", "goodput", **broken_numba)
    assert refused.startswith("numba, which compiles decisions, fails: ImportError")
    assert last == "ON static 0"


# ------------------------------------------------------------------ disk cache


def _double(values: Vector) -> None:
    for i in range(len(values)):
        values[i] *= 2.0


def cache_hits() -> int:
    """Functions read from disk, of one that is compiled as a new process would."""
    compiled: Any = compile_function(_double)
    values = np.array([1.0, 2.0])
    compiled(values)
    assert values.tolist() == [2.0, 4.0]
    return sum(compiled.stats.cache_hits.values())


@pytest.fixture
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


@pytest.mark.usefixtures("_cache")
def test_a_function_is_compiled_once_and_then_read_from_disk() -> None:
    import numba

    before = numba.config.CACHE_DIR
    assert [cache_hits() for _ in range(3)] == [0, 1, 1]
    assert before == numba.config.CACHE_DIR  # other caches stay where they are


@pytest.mark.usefixtures("_cache")
def test_a_changed_constant_of_any_file_of_the_policies_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "kernels.py"))
    (tmp_path / "optional").mkdir()
    found = []
    for factor in ("2.0", "2.0", "3.0"):
        (tmp_path / "optional" / "constants.py").write_text(f"FACTOR = {factor}\n")
        kernels._content_of_policies.cache_clear()
        found.append(cache_hits())
    kernels._content_of_policies.cache_clear()
    assert found == [0, 1, 0]


@pytest.mark.usefixtures("_cache")
def test_a_damaged_cache_is_compiled_anew(tmp_path: Path) -> None:
    cache_hits()
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".nbi", ".nbc")]
    assert files
    for file in files:
        file.write_bytes(b"no pickle")
    assert cache_hits() == 0


@pytest.mark.usefixtures("_cache")
def test_a_folder_that_others_can_write_is_neither_read_nor_written() -> None:
    made = cache_folder()
    cache_hits()
    files = {file: file.stat().st_mtime_ns for file in made.rglob("*")}
    made.chmod(0o777)
    assert cache_folder() is None
    assert cache_hits() == 0
    assert {file: file.stat().st_mtime_ns for file in made.rglob("*")} == files


@pytest.mark.usefixtures("_cache")
def test_the_folder_is_made_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "missing"))
    made = cache_folder()
    assert made.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("_cache")
def test_without_a_place_to_write_there_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    assert cache_folder() is None
    assert cache_hits() == 0


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o702, 0o720, 0o750])
def test_a_folder_with_rights_for_others_is_not_private(folder: Path, mode: int) -> None:
    assert private(folder)
    folder.chmod(mode)
    assert not private(folder)


@pytest.mark.parametrize(("mode", "expected"), [(0o777, False), (0o775, False), (0o1777, True)])
def test_a_parent_must_not_let_others_replace_the_folder(
    folder: Path, mode: int, expected: bool
) -> None:
    folder.parent.chmod(mode)
    assert private(folder) is expected


def test_a_link_to_a_private_folder_is_not_one(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert not private(link)


# ------------------------------------------------------------ a decision's time


@pytest.mark.parametrize("level", list(Level))
def test_no_step_of_goodput_makes_a_kernel_copy_its_arguments(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Numba refuses read-only arrays where a signature says writable ones, and the controller makes
    # the limits of a plan read-only. The refusal, the copies and the second call took 190 us.
    copied: list[Any] = []
    monkeypatch.setattr(kernels, "_as_compiled_for", copied.append)
    sizes = tuple(range(8, 65, 8))
    engine = FakeEngine(
        Capability(level=level, max_draft_tokens=5, token_buckets=sizes), signal=True
    )
    served = Controller(GoodputPolicy(GoodputOptions()), engine.capability, Config())
    for _ in range(60):
        requests = engine.next_round(turnover=0.0)
        for name in requests.names:
            served.slots.assign(name)
        plan = served.plan(engine.context(requests, requests.possible))
        served.observe(engine.verify(requests, plan, requests.possible))
    assert not served.counters.failures
    assert not copied
