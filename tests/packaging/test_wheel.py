"""The wheel, built as RELEASING.md says, and used with the source out of sight."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import adaptive_spec

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("adaptive_spec", "adapters", "policies", "sim")
DATA = (".py", ".typed", ".json", ".html", ".gz", ".md", ".npz")
DEPENDENCIES = ("numpy", "numba", "msgspec", "rich", "typer", "yaml")
WITHOUT_CACHES = shutil.ignore_patterns("__pycache__")


def build_steps() -> list[str]:
    """Commands of RELEASING.md under "Build and try"."""
    page = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    block = re.search(r"Build and try.*?```sh\n(.*?)```", page, re.DOTALL)
    return [line.strip() for line in block[1].splitlines() if line.strip()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=WITHOUT_CACHES)
    for name in ("LICENSE", "NOTICE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    for step in build_steps()[:2]:  # the others need the package index
        follow(step, copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    site = tmp_path_factory.mktemp("site")
    result = run("-m", "pip", "install", "--no-deps", "--quiet", "--target", str(site), str(wheel))
    assert result.returncode == 0, result.stdout + result.stderr
    return site


def test_only_adaptive_spec_is_importable(wheel):
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"adaptive_spec"}


def test_both_packages_are_built(wheel):
    assert {path.suffix for path in wheel.parent.iterdir()} == {".whl", ".gz"}


def test_every_project_whose_figures_the_wheel_holds_is_in_the_notice(wheel):
    """Figures in JSON have a `source`, which names a repository as OWNER/NAME."""
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if name.endswith(".json")]
    text = " ".join(archive.read(name).decode() for name in names if "recipes.json" not in name)
    text = re.sub(
        r"config.json of [\w./-]+|benchmarks/validation", "", text
    )  # of Hugging Face, ours
    projects = set(re.findall(r"\b[A-Za-z]\w+/[A-Za-z][\w-]+\b", text))
    projects |= {each for each in ("SpecDecode-Bench", "aiconfigurator") if each in text}
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8").partition("Not in this distribution")[0]
    assert {"aiconfigurator", "microsoft/vidur"} < projects
    assert not [each for each in projects if each not in notice]


UNLICENSED = {
    "SpecDecode-Bench": ("5.88590713", "0.00588590713", "2.10103129", "0.005875"),
    "SpecDecoding-Study-vLLM-SGLang": ("4.6e-5", "0.000046"),
    "speculative-decoding-draft-length-audit": ("1.7e-5", "0.000017"),
    "speculative-decoding-empirical": ("GAIN = 0.91",),
    "Edge-Cloud-Speculative-Decoding": ("edge-cloud",),
}
"""Repositories without a licence, and figures of theirs that the wheel once held."""
FORMATS = ("per_position.py",)
"""Readers of a file format name the project that has it."""


def test_figures_without_a_licence_stay_out(wheel):
    archive = zipfile.ZipFile(wheel)
    inside = [name for name in archive.namelist() if name.endswith((".py", ".json"))]
    assert not [name for name in inside if "benchmarks" in name]
    for name in inside:
        text = archive.read(name).decode()
        for project, figures in UNLICENSED.items():
            assert project not in text or name.endswith(FORMATS), (name, project)
            assert not [figure for figure in figures if re.search(rf"{figure}(?!\d)", text)], name


@pytest.mark.long
def test_the_page_s_other_steps_install_and_run_the_wheel(wheel):
    """From the package index, dependencies included."""
    steps = build_steps()[2:]
    said = [follow(step, wheel.parents[1]) for step in steps]
    assert len(steps) == 4
    assert "verdict: ready for simulation" in said[2]
    assert "goodput" in said[3]


def test_holds_every_source_file_and_the_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for top in SOURCES:
        prefix = "" if top == "adaptive_spec" else "adaptive_spec/"
        for path in (ROOT / top).rglob("*"):
            if path.suffix in DATA:
                assert prefix + path.relative_to(ROOT).as_posix() in names
    assert any(name.endswith("/LICENSE") for name in names)
    assert any(name.endswith("/NOTICE") for name in names)


def test_works_without_the_source(installed, tmp_path):
    code = (
        "import adaptive_spec, adaptive_spec.adapters.vllm, adaptive_spec.sim\n"
        "print(adaptive_spec.__file__)\n"
        "print(adaptive_spec.build_policy('goodput').name)"
    )
    result = run("-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert result.returncode == 0, result.stderr
    file, policy = result.stdout.split()
    assert Path(file).is_relative_to(installed)
    assert policy == "goodput"


def test_command_works_without_the_source(installed, tmp_path):
    code = (
        "import sys; sys.argv = ['adaptive-spec', 'policies']\n"
        "from adaptive_spec.commands.cli import main; main()"
    )
    result = run("-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert result.returncode == 0, result.stderr
    assert "batch_table" in result.stdout


def test_the_simulator_works_without_the_source(installed, tmp_path):
    given = "--load closed:2 --tokens 300 --policy static:k=2 --oracles never"  # compiles nothing
    arguments = ["adaptive-spec", "replay", *given.split()]
    code = (
        f"import sys; sys.argv = {arguments}\nfrom adaptive_spec.commands.cli import main; main()"
    )
    result = run("-c", code, cwd=tmp_path, PYTHONPATH=str(installed), ADAPTIVE_SPEC_DATA="")
    assert result.returncode == 0, result.stderr
    assert "static" in result.stdout


def test_entry_points_work_in_a_clean_environment(wheel, tmp_path):
    venv.create(tmp_path, with_pip=False, symlinks=True)
    python = tmp_path / "bin" / "python"
    (here,) = (tmp_path / "lib").glob("python*/site-packages")
    dependencies = {Path(find_spec(name).origin).parents[1] for name in DEPENDENCIES}
    (here / "dependencies.pth").write_text("\n".join(map(str, dependencies)))
    target = ("--prefix", str(tmp_path), "--ignore-installed")
    result = run("-m", "pip", "install", "--no-deps", "--quiet", *target, str(wheel))
    assert result.returncode == 0, result.stderr
    code = (
        "from importlib.metadata import distribution as d\n"
        "print(*[point.load().__module__ for point in d('adaptive-spec').entry_points])"
    )
    loaded = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    assert len(loaded.stdout.split()) > 30
    script = tmp_path / "bin" / "adaptive-spec"
    said = subprocess.run(
        [python, script, "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert said.stdout.strip().endswith(adaptive_spec.__version__), said.stderr


def follow(step: str, folder: Path) -> str:
    """Run a line of the page with this environment's `python`; what it prints."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", step],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, step + done.stdout + done.stderr
    return done.stdout


def run(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = {**os.environ, **env}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)


SAVES_AND_RESTORES = """
import sys
import tomllib
from pathlib import Path
from adaptive_spec import Capability, Config, Controller, Level, build_policy
from adaptive_spec.testing.fake_engine import FakeEngine

def made():
    config = Config(state_directory=sys.argv[1])
    engine = Capability(level=Level.FULL, max_draft_tokens=5)
    return Controller(build_policy("goodput"), engine, config, identity={"model": "m"})

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


@pytest.mark.long
def test_the_oldest_versions_that_are_allowed_work(wheel, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")

    def ran(*command: str) -> str:
        done = subprocess.run([python, *command], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    bounds = [oldest(each) for each in project["dependencies"]]
    ran("-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), *bounds)
    for command in (("--help",), ("policies",), ("doctor",), ("config", '{"policy": "static"}')):
        assert ran("-m", "adaptive_spec", *command)
    shown = ran("-m", "adaptive_spec", "replay", "--load", "closed:2", "--tokens", "200", "--json")
    assert json.loads(shown)
    ran("-c", SAVES_AND_RESTORES, str(tmp_path / "state"))
