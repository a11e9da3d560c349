"""What is installed is what stands in the tree, and nothing but `adaptive_spec` is importable."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

import adaptive_spec
from adaptive_spec import available_policies

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("adapters", "policies", "sim")


def packages_in_tree() -> list[str]:
    found = ["adaptive_spec"]
    for top, name in (
        ("adaptive_spec", "adaptive_spec"),
        *((x, f"adaptive_spec.{x}") for x in LINKED),
    ):
        for folder, subfolders, files in os.walk(ROOT / top):
            subfolders[:] = [sub for sub in subfolders if not Path(folder, sub).is_symlink()]
            if "__init__.py" in files:
                relative = Path(folder).relative_to(ROOT / top).parts
                found.append(".".join([name, *relative]))
    return sorted(set(found))


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_pyproject_lists_every_package_of_the_tree():
    assert sorted(project()["tool"]["setuptools"]["packages"]) == packages_in_tree()


def test_every_folder_with_python_code_is_a_package():
    for top in ("adaptive_spec", *LINKED):
        for folder, _, files in os.walk(ROOT / top):
            if any(name.endswith(".py") for name in files):
                assert "__init__.py" in files, folder


@pytest.mark.parametrize("name", LINKED)
def test_links_inside_the_package_are_relative(name):
    link = ROOT / "adaptive_spec" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", name)


@pytest.mark.parametrize("name", LINKED)
def test_bare_import_from_the_repository_is_refused(name):
    result = python(f"import {name}", cwd=ROOT)
    assert result.returncode == 1
    assert result.stderr.strip().endswith(f"import adaptive_spec.{name}, not {name}")


def test_no_engine_is_a_hard_dependency():
    dependencies = " ".join(project()["project"]["dependencies"])
    for engine in ("vllm", "sglang", "tensorrt", "torch"):
        assert engine not in dependencies


def test_installed_version_is_the_one_in_the_code():
    assert distribution("adaptive-spec").version == adaptive_spec.__version__


def test_every_entry_point_can_be_loaded():
    points = distribution("adaptive-spec").entry_points
    assert {point.group for point in points} == {
        "console_scripts",
        "sglang.srt.plugins",
        "vllm.endpoint_plugins",
        "vllm.general_plugins",
        "adaptive_spec.policies",
        "adaptive_spec.baselines",
        "adaptive_spec.commands",
        "adaptive_spec.engine_reports",
        "adaptive_spec.recipes",
        "adaptive_spec.source_checks",
    }
    for point in points:
        assert callable(point.load()), point


@pytest.mark.parametrize("name", sorted(available_policies()))
def test_no_policy_of_a_server_loads_the_simulator(name):
    code = (
        "import sys; from adaptive_spec import Capability, Config, Controller, Level; "
        f"Controller.from_config(Config(policy={name!r}), Capability(level=Level.FULL, "
        "max_draft_tokens=3)); "
        "print([name for name in sys.modules if name.startswith('adaptive_spec.sim')])"
    )
    result = python(code)
    assert result.stdout.strip() == "[]", result.stderr


def test_import_loads_nothing_heavy():
    heavy = (
        *("click", "matplotlib", "numba", "pandas", "polars", "prometheus_client", "rich"),
        *("scipy", "sklearn", "torch", "transformers", "typer", "vllm", "yaml"),
        *("adaptive_spec.adapters", "adaptive_spec.policies", "adaptive_spec.sim"),
    )
    code = f"import sys, adaptive_spec; print([name for name in {heavy} if name in sys.modules])"
    result = python(code)
    assert result.stdout.strip() == "[]", result.stderr


def test_all_is_sorted_and_complete():
    assert adaptive_spec.__all__ == sorted(adaptive_spec.__all__)
    for name in adaptive_spec.__all__:
        assert hasattr(adaptive_spec, name)


def python(code: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


def test_an_extra_is_named_as_it_can_be_installed():
    """The project is not on PyPI: `errors.missing_extra` words it, from a checkout."""
    folders = ("adaptive_spec", "adapters", "docs", "examples", "policies", "sim")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]
    texts = [path for path in files if path.suffix in (".ipynb", ".md", ".py")]
    assert len(texts) > 300
    for path in texts:
        assert "adaptive-spec[" not in path.read_text(encoding="utf-8"), path
