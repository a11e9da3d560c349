"""Run the checks in stages: `python scripts/checks.py quick | all | long`.

quick   lint, types, layers, documentation site, whether decisions are those of
        `scripts/decisions.txt`, `tests/core` and `tests/policies` except what is marked `slow`
        (environment `dev` only); about a minute
all     the same with every test that needs no engine, random worlds, then everything that needs a
        real vLLM (environment `vllm`) or a real SGLang (environment `sglang`)
long    only the tests marked `long`: those without an engine, with vLLM, with SGLang

Every stage runs even if one before it failed; the exit status says whether all were good.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from environments import ROOT, build, environments_folder, python_of, right_python

NEED_VLLM = (
    "tests/bench_models",
    "tests/bench_judge",
    "tests/bench_gpu/with_vllm",
    "tests/demo",
    "tests/upstream",
)
"""What needs packages that only the environment `vllm` has."""

SCRIPTED = "tests/bench_judge/test_scripted_sglang.py"
"""It builds SGLang's scheduler in pytest's process: in one of its own, with SGLang's hooks."""

BUILT_IN_SCHEMAS = {
    "deploy/compose/docker-compose.yml": "vendor.compose-spec",
    "deploy/ci/newest-engines.yml": "vendor.github-workflows",
    ".github/workflows/check.yml": "vendor.github-workflows",
}

VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
SGLANG_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT / "tests/sglang/stand_in"),
    "SGLANG_USE_CPU_ENGINE": "1",
}
"""So that SGLang can be imported on a CPU: see tests/sglang/stand_in/README.md."""

IN_A_WORKER = ("-v", "-n", "1", "--timeout=900", "--durations=25")
"""An engine may end the process that it runs in: pytest's worker, whose test then has failed, and
not the stage."""

SUMMARY_LINE = re.compile(r"^(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s\b.*$")
NO_TESTS = 5
"""pytest's exit status; a stage that tests nothing has failed."""
BAD_LINE = re.compile(r"^(?:FAILED|ERROR) ")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Stage:
    """One line of the closing table."""

    name: str
    seconds: float = 0.0
    good: bool = True
    summary: str = ""


class Run:
    """Runs commands, shows their output and remembers how they ended.

    Args:
        began: of the whole, on the monotonic clock.
        live: show output as it comes; else when another run takes this one in.
    """

    def __init__(self, began: float, *, live: bool = True) -> None:
        self.stages: list[Stage] = []
        self.bad_lines: list[str] = []
        self.began = began
        self._live = live
        self._untold = bytearray()

    def take_in(self, other: Run) -> None:
        """Append the output and the stages of a run that went in parallel."""
        sys.stdout.buffer.write(bytes(other._untold))
        sys.stdout.buffer.flush()
        self.stages += other.stages
        self.bad_lines += other.bad_lines

    def _tell(self, output: bytes) -> None:
        if self._live:
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
        else:
            self._untold += output

    def stage(
        self, name: str, *commands: list[str | Path], env: dict[str, str] | None = None
    ) -> None:
        """Run the commands of a stage, all of them."""
        self._tell(f"\n##### {name}: at {time.monotonic() - self.began:.0f} s #####\n".encode())
        stage, began = Stage(name), time.monotonic()
        for command in commands:
            self._command(stage, command, env or {})
        stage.seconds = time.monotonic() - began
        self.stages.append(stage)

    def missing(self, name: str, why: str) -> None:
        """A stage that could not run has failed."""
        self.stages.append(Stage(name, good=False, summary=why))

    def _command(self, stage: Stage, command: list[str | Path], env: dict[str, str]) -> None:
        shown = " ".join(map(str, command)).replace(str(environments_folder()), "$VENVS")
        self._tell(f"$ {shown}\n".encode())
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_with(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        output = bytearray()
        while chunk := os.read(process.stdout.fileno(), 65536):
            self._tell(chunk)
            output += chunk
        for line in COLOUR.sub("", output.decode(errors="replace")).splitlines():
            if match := SUMMARY_LINE.match(line):
                stage.summary = match.group(1)
            elif BAD_LINE.match(line):
                self.bad_lines.append(line)
        if process.wait() != 0:
            stage.good = False
            if process.returncode == NO_TESTS:
                stage.summary = "no test was selected"
            elif not stage.summary:
                stage.summary = f"{Path(command[0]).name} exited with {process.returncode}"

    def close(self) -> int:
        """Print the table of stages and the sum of what pytest said."""
        width = max(len(stage.name) for stage in self.stages)
        print("\n##### summary #####")
        for stage in self.stages:
            state = "ok    " if stage.good else "FAILED"
            print(f"{stage.name:<{width}}  {state}  {stage.seconds:5.0f} s  {stage.summary}")
        for line in self.bad_lines:
            print(line)
        print(_total(self.stages, time.monotonic() - self.began), flush=True)
        return 0 if all(stage.good for stage in self.stages) else 1


def _with(variables: dict[str, str]) -> dict[str, str]:
    """This process's environment and a stage's; what the user has set wins, but for a path."""
    made = {**variables, **os.environ}
    # Without bytecode on disk each process of an engine spends 15 s of CPU on compiling it anew.
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    path = "PYTHONPATH"
    if path in variables and os.environ.get(path):
        made[path] = os.pathsep.join((variables[path], os.environ[path]))
    return made


def _total(stages: list[Stage], seconds: float) -> str:
    """All of pytest's closing lines as one."""
    counts: Counter[str] = Counter()
    for stage in stages:
        for number, word in re.findall(r"(\d+) ([a-z]+)", stage.summary):
            counts[word.removesuffix("s")] += int(number)
    counts.pop("deselected", None)
    order = sorted(counts, key=lambda word: (word != "failed", word != "passed", word))
    plural = {
        word: "s" if word in ("error", "warning") and counts[word] > 1 else "" for word in order
    }
    text = ", ".join(f"{counts[word]} {word}{plural[word]}" for word in order) or "no tests ran"
    return f" {text} in {seconds:.2f}s ".center(80, "=")


Staged = tuple[str, Callable[[Run], None]]
"""Which environment a stage needs, and the stage."""


def lint(run: Run) -> None:
    """Format, style, types, layers."""
    tools = python_of("dev").parent
    run.stage(
        "lint, types, layers",
        [tools / "ruff", "format", "--check", "."],
        [tools / "ruff", "check", "."],
        [tools / "mypy"],
        [tools / "lint-imports", "--no-logo"],
    )


def site(run: Run) -> None:
    """The documentation site, and the files for containers."""
    tools = python_of("dev").parent
    run.stage(
        "site, packages, deploy",
        [tools / "mkdocs", "build", "--strict", "--quiet"],
        [tools / "yamllint", "--strict", "--config-file", "deploy/.yamllint", "deploy"],
        [tools / "hadolint", "deploy/Dockerfile", "deploy/Dockerfile.sglang"],
        *(
            [tools / "check-jsonschema", "--builtin-schema", schema, file]
            for file, schema in BUILT_IN_SCHEMAS.items()
        ),
        env={"NO_MKDOCS_2_WARNING": "1"},
    )


def decisions(run: Run) -> None:
    """Return whether every policy decides as `scripts/decisions.txt` says."""
    hashes = ROOT / "scripts/decision_hashes.py"
    against = ["--against", ROOT / "scripts/decisions.txt"]
    run.stage("decisions", [python_of("dev"), hashes, *against])


def core(run: Run, *, quick: bool) -> None:
    """The tests that need no engine; `quick`: those of core and policies, with fewer examples."""
    options = "-m pytest -q -W error -n auto --dist loadfile --durations=40".split()
    markers = "not engine and not http and not statistics and not chaos and not long"
    env = {}
    places = [f"--ignore={place}" for place in NEED_VLLM]
    if quick:
        env["ADAPTIVE_SPEC_QUICK"] = "1"
        markers += " and not slow"
        places = ["tests/core", "tests/policies"]
    run.stage("core", [python_of("dev"), *options, "-m", markers, *places], env=env)


def random_worlds(run: Run) -> None:
    """Controller and policies in random worlds; no engine either, but a minute long."""
    options = "-m pytest -q -W error -n auto -m chaos tests/chaos".split()
    run.stage("random worlds", [python_of("dev"), *options])


def _version(engine: str, version: str, *options: str) -> Staged:
    """A stage: the tests marked `every_version` on another version of an engine."""
    command = [sys.executable, ROOT / "scripts/engine_versions.py", engine, version, *options]
    return engine, lambda run: run.stage(f"{engine} {version}", command)


def _vllm_stage(run: Run, name: str, markers: str, *places: str) -> None:
    wanted = places or ("tests/vllm", *NEED_VLLM)
    present = [each for each in wanted if each.startswith("--") or (ROOT / each).exists()]
    pytest = [python_of("vllm"), "-m", "pytest", *IN_A_WORKER]
    run.stage(name, [*pytest, "-m", markers, *present], env=VLLM_ENVIRONMENT)


def _vllm_v1(run: Run) -> None:
    # What needs no engine has run in the stage `core`.
    rest = "--ignore-glob=*/test_v2_*"
    _vllm_stage(run, "vLLM, in process", f"engine and {IN_PROCESS}", "tests/vllm", rest)


def _vllm_v2(run: Run) -> None:
    runner = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/vllm/test_v2_*.py"))]
    _vllm_stage(run, "vLLM, runner V2, judge", IN_PROCESS, *runner, *NEED_VLLM)


def _sglang_stage(run: Run, name: str, markers: str, tests: str = "tests/sglang") -> None:
    pytest = [python_of("sglang"), "-m", "pytest", *IN_A_WORKER]
    run.stage(name, [*pytest, "-m", markers, tests], env=SGLANG_ENVIRONMENT)


def _long_core(run: Run) -> None:
    pytest = [python_of("dev"), *"-m pytest -v --durations=10".split()]
    elsewhere = [f"--ignore={place}" for place in NEED_VLLM]
    run.stage("long, core", [*pytest, "-m", "long and not engine and not http", *elsewhere])


IN_PROCESS = "not http and not statistics and not long"
OTHERWISE = "(http or statistics) and not long"

WITH_ENGINE: dict[str, tuple[Staged, ...]] = {
    "all": (
        ("vllm", _vllm_v1),
        ("vllm", _vllm_v2),
        ("sglang", lambda run: _sglang_stage(run, "SGLang", "(engine or http) and not long")),
        ("sglang", lambda run: _sglang_stage(run, "SGLang, scripted", "not long", SCRIPTED)),
        ("vllm", lambda run: _vllm_stage(run, "HTTP, statistics", OTHERWISE)),
    ),
    "long": (
        ("dev", _long_core),
        ("vllm", lambda run: _vllm_stage(run, "long, vLLM", "long")),
        _version("vllm", "0.26.0", "--quick"),
        _version("vllm", "0.28.0", "--quick"),
        _version("vllm", "0.30.0", "--quick"),
        _version("vllm", "0.31.0"),
        _version("vllm", "0.33.0"),
        ("sglang", lambda run: _sglang_stage(run, "long, SGLang", "long")),
        *(_version("sglang", version) for version in ("0.5.20", "0.5.21", "0.5.22")),
    ),
}
"""The longest stages come first, for two run at a time."""


def run_beside(
    run: Run, stages: Sequence[Staged], downloads: Mapping[str, subprocess.Popen[bytes]]
) -> None:
    """Run stages two at a time: linters, and engines here, compute with one thread.

    The output of a stage is shown when it and those before it have ended.
    """

    def one(name: str, stage: Callable[[Run], None]) -> Run:
        part = Run(run.began, live=False)
        if name not in downloads or downloads[name].wait() == 0:
            try:
                stage(part)
            except Exception as error:  # of a thread: nobody else would hear of it
                part.missing(name, repr(error))
        else:
            part.missing(name, f"the environment {name} could not be built, see above")
        return part

    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for part in pool.map(one, *zip(*stages, strict=True)):
            run.take_in(part)


def main() -> int:
    """Parse the command line and run."""
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what not in ("quick", *WITH_ENGINE):
        print(__doc__)
        return 2
    if not right_python():
        return 2
    run = Run(time.monotonic())
    stages = WITH_ENGINE.get(what, ())
    # The engines are downloaded while the quick checks run, which wait for the small one only.
    command = [sys.executable, ROOT / "scripts/environments.py"]
    names = dict.fromkeys(name for name, _ in stages)
    downloads = {name: subprocess.Popen([*command, name]) for name in names if name != "dev"}
    try:
        build("dev")
    except (subprocess.CalledProcessError, OSError):
        run.missing("dev", "the environment dev could not be built, see above")
    if what != "long" and not run.stages:
        quick = what == "quick"
        alone = (lint, decisions, site) if quick else (lint, site)
        run_beside(run, [("dev", stage) for stage in alone], {})
        core(run, quick=quick)
        if not quick:
            random_worlds(run)
    if stages:
        run_beside(run, stages, downloads)
    return run.close()


if __name__ == "__main__":
    sys.exit(main())
