"""README.md and docs/ agree with the code, and every kept result stands on a page."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.commands.cli import with_installed_commands
from adaptive_spec.config import parse_config
from tests.command_line import called

sys.path.insert(0, str(Path(__file__).parent))
from documented_commands import (
    EXECUTED_ELSEWHERE,
    NOT_EXECUTED,
    all_commands,
    reason_not_executed,
    with_stand_ins,
)

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
COMMANDS = all_commands(ROOT)


def simulates(command: str) -> bool:
    """Whether a command takes seconds: it simulates, or reads a trace that is simulated first."""
    return " replay" in command or reads_trace(command)


def reads_trace(command: str) -> bool:
    """Whether a command is given the trace of a simulated server."""
    return "recorded" in with_stand_ins(command)


EXECUTED = [
    pytest.param(command, marks=pytest.mark.slow if simulates(command) else ())
    for command in COMMANDS
    if reason_not_executed(command) is None
]
RESULTS = ROOT / "benchmarks" / "results"
LINKS = [
    (folder / link)
    for folder, text in [(ROOT, README), *((ROOT / "docs", page) for page in PAGES.values())]
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
]
SHOWN = [
    text
    for page in (README, *PAGES.values())
    for text in re.findall(r"--additional-config '(\{.*?\})'", page)
    if "..." not in text
]


def test_generated_tables_are_in_step():
    command = [sys.executable, str(ROOT / "scripts" / "generated_docs.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_pictures_are_in_step():
    command = [sys.executable, str(ROOT / "scripts" / "site_pictures.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shown command in a folder."""
    program, *arguments = shlex.split(command)
    if program == "adaptive-spec":
        return called(*arguments, cwd=folder)
    assert program == "python"
    start = [sys.executable, str(ROOT / arguments.pop(0))]
    return subprocess.run([*start, *arguments], cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="session")
def trace(tmp_path_factory):
    """Recorded steps of a simulated server with random K."""
    return record(tmp_path_factory.mktemp("documented"), tokens=1500)


@pytest.fixture(scope="session")
def long_trace(tmp_path_factory):
    """One with enough requests to fit a model to some and to hold out others."""
    return record(tmp_path_factory.mktemp("documented"), tokens=9000)


def record(folder, tokens):
    options = f"--load closed:4 --tokens {tokens} --oracles never --level 1 --trace traces"
    done = run(f"adaptive-spec replay {options} --policy static:uniform_fraction=1.0", folder)
    assert done.returncode == 0, done.stderr
    return folder / "traces" / "0-static"


@pytest.mark.parametrize("command", EXECUTED)
def test_commands_it_shows_run(command, tmp_path, request):
    """A command that no test can execute belongs into documented_commands.py, with the reason."""
    (tmp_path / "adaptive-spec.yaml").write_text("mode: shadow\n")
    if reads_trace(command):
        kind = "long_trace" if " fit " in command else "trace"
        (tmp_path / "recorded").symlink_to(request.getfixturevalue(kind))
    result = run(with_stand_ins(command), tmp_path)
    allowed = (0, 1) if command.endswith(" doctor") else (0,)  # 1: it found something to act on
    assert result.returncode in allowed, result.stderr
    assert result.stdout


def test_every_reason_not_to_execute_a_command_is_needed():
    needed = {reason_not_executed(command) for command in COMMANDS} - {None}
    assert needed == {*NOT_EXECUTED, *EXECUTED_ELSEWHERE}
    assert all((ROOT / test).is_file() for test in EXECUTED_ELSEWHERE.values())


def test_every_page_is_in_the_navigation_or_reached_by_a_link():
    settings = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": (\w+\.md)$", settings, re.MULTILINE))
    linked = set(re.findall(r"^  (\w+\.md)$", settings, re.MULTILINE))
    assert set(PAGES) <= listed | linked, "name the page in mkdocs.yml, under `nav`"
    for page in linked & set(PAGES):
        assert any(f"]({page})" in text for text in PAGES.values()), page


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120


def test_the_readme_names_the_range_of_versions_of_vllm():
    oldest, newest = (VERSIONS.rows[end].version.rpartition(".")[0] for end in (0, -1))
    assert f"vLLM {oldest} to {newest}" in README


def test_every_command_is_described_and_no_other():
    row = re.compile(r"^\| `adaptive-spec ([a-z]\w*(?:-\w+)?)", re.MULTILINE)
    described = row.findall(PAGES["configuration.md"])
    assert set(described) == set(typer.main.get_command(with_installed_commands()).commands)


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"check", "demo-quick", "test"} <= named <= targets


def test_continuous_integration_runs_its_test_command():
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make test ", README, re.MULTILINE)


@pytest.mark.parametrize("shown", SHOWN)
def test_configurations_it_shows_are_valid(shown):
    parse_config(json.loads(shown)["adaptive_spec"], source="docs")


@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link.parent.name}/{link.name}")
def test_files_it_links_to_exist(link):
    assert link.resolve().is_file()


@pytest.mark.parametrize(
    "module", sorted({*re.findall(r"benchmarks/\w+\.py", "".join(PAGES.values()))})
)
def test_benchmarks_it_names_exist(module):
    assert (ROOT / module).is_file()


def test_few_results_are_kept_and_a_page_quotes_each():
    files = sorted(path.relative_to(RESULTS) for path in RESULTS.rglob("*") if path.is_file())
    assert 0 < len(files) <= 10
    for file in files:
        assert any(f"benchmarks/results/{file}" in page for page in PAGES.values()), file


def test_the_sites_search_dialog_has_a_name():
    material = pytest.importorskip("material", reason="mkdocs-material is not installed")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    partial = Path(material.__file__).parent / "templates" / "partials" / "search.html"
    assert 'aria-label="Search"' in hooks.on_post_page(partial.read_text()).split(">")[0]


def test_a_user_finds_answers_by_the_words_he_has():
    words = "crash disaggregated overhead privacy rollback runbook warm-up".split()
    assert [word for word in words if word not in PAGES["operate.md"].lower()] == []


FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_benchmark_says_what_it_serves() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "."], cwd=FOLDER, capture_output=True, text=True, check=True
    ).stdout.split()
    here = {Path(file).parts[0] for file in tracked} - {"README.md"}
    listed = set()
    for row in re.findall(r"^\| (`.*?`) \|", (FOLDER / "README.md").read_text(), re.MULTILINE):
        names = re.findall(r"`(.*?)`", row)
        stem = names[0].partition(".")[0]
        listed |= {(stem + n if n.startswith(".") else n).rstrip("/") for n in names}
    assert here == listed
