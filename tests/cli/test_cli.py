"""The command as a user calls it: its output and its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_spec
from adaptive_spec.commands import cli
from adaptive_spec.commands.demo import MODELS, SCRIPT, demo_script
from adaptive_spec.errors import AdaptiveSpecError
from tests.command_line import called

COMMAND = Path(sys.executable).with_name("adaptive-spec")
OURS = ["bandit", "goodput", "off", "regression", "static"]
BASELINES = [
    *("batch_table", "cascade", "nightjar", "sglang_ema", "sglang_throughput"),
    *("trtllm_schedule", "turbospec"),
    *("vllm_adaptive_verification",),
]
POLICIES = sorted(OURS + BASELINES)


OF_A_PROCESS = {"PYTHONPATH", "_ADAPTIVE_SPEC_COMPLETE"}
"""Variables that are read before the command begins."""


def call(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    if not OF_A_PROCESS & env.keys():
        return called(*arguments, **{"COLUMNS": "160", **env})
    environment = {key: value for key, value in os.environ.items() if "ADAPTIVE_SPEC" not in key}
    environment |= {"COLUMNS": "160", "NO_COLOR": "1", **env}
    command = [COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def write(folder: Path, text: str, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("command", ["config", "sweep"])
def test_a_hostile_file_is_one_line_and_no_crash(command: str, tmp_path: Path) -> None:
    for name, text in (("x.yaml", "[" * 200_000), ("x.json", '{"seed": ' + "9" * 6000 + "}")):
        done = call(command, write(tmp_path, text, name))
        assert done.returncode == 2, done.stderr[-300:]
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_removed_command_says_what_to_use() -> None:
    done = call("evaluate", "TRACE", "--policy", "static")
    assert done.returncode == 2
    assert done.stderr == (
        "error: `adaptive-spec evaluate` was removed in 0.2: use `adaptive-spec advise`, or "
        "`adaptive-spec prove` on a running server\n"
    )


def test_what_does_not_fit_in_memory_is_one_line(monkeypatch, capsys) -> None:
    def too_large(arguments: list[str]) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "with_installed_commands", lambda: too_large)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: this takes more memory than there is\n"


@pytest.mark.parametrize("command", ["advise", "fit", "profile", "report", "sweep", "top"])
def test_a_link_to_itself_is_one_line_and_no_crash(command: str, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = call(command, loop)
    assert done.returncode == 2, done.stderr[-300:]
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_outputs_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    file = write(tmp_path, "", "file")
    text = f"status_file: {file}/x/status.json\ntrace: {{directory: {tmp_path}/new/folder}}\n"
    done = call("config", write(tmp_path, text))
    assert done.returncode == 0
    assert done.stderr.startswith("warning: `status_file` cannot be written: ")
    assert "Not a directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_recipe_where_vllm_is_missing_is_one_line(tmp_path: Path) -> None:
    for recipe in ("vllm serve MODEL", write(tmp_path, "vllm serve MODEL", "serve.sh")):
        done = call("doctor", "--recipe", recipe)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert "vllm" in done.stderr.lower()
        assert len(done.stderr.splitlines()) == 1


def test_a_recipe_that_is_no_file_with_text_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe")
    for name in ("pipe.yaml", "binary.sh", "missing.yaml", ""):
        done = call("doctor", "--recipe", tmp_path / name)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: --recipe {tmp_path}")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"adaptive-spec": {"mode": "on"}}', "nothing reads the key 'adaptive-spec'"),
        ('{"mode": "on"}', "the key 'mode' of --additional-config stands outside"),
        (None, "no configuration of the plugin"),
    ],
)
def test_a_recipe_that_switches_nothing_on_is_said_at_once(given: str | None, said: str) -> None:
    """Without vLLM; the last from the table of known models."""
    command = (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config "
        """'{"method": "eagle3", "model": "HEAD", "num_speculative_tokens": 5}' """
    )
    more = f"--additional-config '{given}'" if given else ""
    done = call("doctor", "--json", "--recipe", command + more)
    assert done.returncode == 1
    rows = json.loads(done.stdout)["rows"]
    [steered] = [text for key, text in rows if key == "steered"]
    assert steered.startswith("nothing: ")
    assert said in steered
    assert given is not None or steered.endswith("eagle3, Kmax 5: K per request, and draft depth")


@pytest.mark.parametrize(
    ("speculation", "said"),
    [
        ('{"method": "ngram_gpu", "num_speculative_tokens": 6}', "not known: the table has eagle3"),
        ("", "nothing: the command has no drafter"),
    ],
)
def test_the_table_answers_for_its_own_methods_only(speculation: str, said: str) -> None:
    more = f"--speculative-config '{speculation}'" if speculation else ""
    config = """--additional-config '{"adaptive_spec": {}}'"""
    command = f"vllm serve meta-llama/Llama-3.1-8B-Instruct {more} {config}"
    done = call("doctor", "--json", "--recipe", command)
    assert done.returncode == 1
    assert dict(json.loads(done.stdout)["rows"])["steered"].startswith(said)


def test_a_configuration_under_the_wrong_key_is_warned_of() -> None:
    assert "'adaptive-spec' is no key" in call("config", '{"adaptive-spec": {}}').stderr
    assert "stands outside of" in call("config", '{"mode": "on"}').stderr
    done = call("config", '{"adaptive_spec": {"mode": "shadow"}, "another": 1}')
    assert (done.returncode, done.stderr) == (0, "")
    assert "mode: shadow" in done.stdout


def package(folder: Path, name: str, entry_points: str, code: str) -> str:
    """The folder of a package of somebody else's, for PYTHONPATH."""
    info = folder / "site" / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (info.parent / f"{name}.py").write_text(code)
    return str(info.parent)


@pytest.fixture
def other_package(tmp_path):
    """A package with a policy and two reports, one of each broken."""
    entry_points = (
        "[adaptive_spec.engine_reports]\n"
        "broken_engine = others:broken\n"
        "missing_engine = not_there:describe\n"
        "[adaptive_spec.commands]\n"
        "greet = others:greet\n"
        "absent = not_there:command\n"
        "[adaptive_spec.policies]\n"
        "theirs = others:Theirs\n"
        "half = others:Half\n"
    )
    code = (
        "from adaptive_spec.policies.off import OffPolicy\n"
        "class Theirs(OffPolicy):\n    name, summary = 'theirs', 'made elsewhere'\n"
        "class Half:\n    name = 'half'\n"
        "def greet():\n    print('hello')\n"
        "def broken():\n    raise RuntimeError('engine is [red]broken[/red]\\nsecond line')\n"
    )
    return package(tmp_path, "others", entry_points, code)


def test_version():
    result = call("--version")
    assert (result.returncode, result.stdout) == (0, f"{adaptive_spec.__version__}\n")


def test_help_names_the_commands():
    result = call("--help")
    assert result.returncode == 0
    for command in ("doctor", "policies", "config", "replay", "sweep", "report"):
        assert command in result.stdout


def test_a_command_of_another_package_is_found(other_package):
    assert call("greet", PYTHONPATH=other_package).stdout == "hello\n"


@pytest.fixture
def usurper(tmp_path):
    """A package with the names of ours."""
    entry_points = (
        "[adaptive_spec.commands]\nreplay = usurper:stop\ndoctor = usurper:stop\n"
        "[adaptive_spec.policies]\ngoodput = usurper:Goodput\nturbospec = usurper:Goodput\n"
        "[adaptive_spec.baselines]\nstatic = usurper:Goodput\n"
    )
    code = (
        "from adaptive_spec.policies.off import OffPolicy\n"
        "class Goodput(OffPolicy):\n    name = 'goodput'\n"
        "def stop():\n    print('usurped')\n"
    )
    folder = package(tmp_path, "usurper", entry_points, code)
    return os.pathsep.join([folder, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])


def test_names_of_ours_are_not_taken_by_another_package(usurper):
    program = (
        "from adaptive_spec.policy import build_policy as build\n"
        "for name in ('goodput', 'static', 'turbospec'):\n"
        "    print(type(build(name, baselines=True)).__module__)\n"
    )
    environment = {**os.environ, "PYTHONPATH": usurper}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 3, done.stderr
    assert all(line.startswith("adaptive_spec.") for line in done.stdout.splitlines())
    for name in ("goodput", "static", "turbospec"):
        assert done.stderr.count(f"policy '{name}' of usurper:Goodput is left out") == 1
    listed = json.loads(call("policies", "--json", PYTHONPATH=usurper).stdout)
    left_out = {each["name"] for each in listed if "left out" in each["problem"]}
    assert left_out == {"goodput", "static", "turbospec"}
    result = call("doctor", PYTHONPATH=usurper)
    assert "usurped" not in result.stdout
    assert "command 'doctor' of usurper:stop is left out" in result.stderr
    assert "command 'replay' of usurper:stop is left out" in result.stderr


def test_without_arguments_the_help_is_the_answer():
    result = call()
    assert (result.returncode, result.stdout) == (0, call("--help").stdout)


def test_a_shell_completes_commands():
    assert "--install-completion" in call("--help").stdout
    done = call(
        _ADAPTIVE_SPEC_COMPLETE="complete_bash", COMP_WORDS="adaptive-spec rep", COMP_CWORD="1"
    )
    assert done.stdout.split() == ["replay", "report"]


def test_a_command_that_cannot_be_loaded_says_so_and_leaves_the_others(other_package):
    result = call("absent", PYTHONPATH=other_package)
    assert result.returncode == 2
    assert result.stderr.startswith("error: command 'absent' cannot be loaded: ModuleNotFound")
    assert call("--version", PYTHONPATH=other_package).returncode == 0


def test_doctor_prints_what_is_there_on_one_screen():
    result = call("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "adaptive-spec   0.1.0" in result.stdout
    assert "vllm" in result.stdout
    assert "ADAPTIVE_SPEC_CONFIG   not set" in result.stdout
    assert f"{len(POLICIES)} policies" in result.stdout
    assert len(result.stdout.splitlines()) < 40


def test_doctor_without_vllm_in_json():
    result = call("doctor", "--json")
    report = json.loads(result.stdout)
    assert result.returncode == 0
    assert [engine["engine"] for engine in report["engines"]] == ["sglang", "tensorrt-llm", "vllm"]
    assert report["version"] == adaptive_spec.__version__
    assert [policy["name"] for policy in report["policies"]] == POLICIES
    assert report["configured"] == {"source": "", "mode": "", "policy": "", "problem": ""}
    assert report["problems"] == []


def test_doctor_says_what_is_switched_on(tmp_path):
    path = write(tmp_path, "mode: shadow\npolicy: static\noptions: {k: 2}\n")
    result = call("doctor", "--json", ADAPTIVE_SPEC_CONFIG=str(path))
    configured = json.loads(result.stdout)["configured"]
    assert result.returncode == 0
    assert (configured["mode"], configured["policy"]) == ("shadow", "static")
    assert "mode shadow, policy static" in call("doctor", ADAPTIVE_SPEC_CONFIG=str(path)).stdout


def test_doctor_reports_a_configuration_that_cannot_work(tmp_path):
    path = write(tmp_path, "policy: static\noptions: {k: -1}\n")
    result = call("doctor", ADAPTIVE_SPEC_CONFIG=str(path))
    assert result.returncode == 1
    assert "not usable" in result.stdout
    assert "problem:" in result.stdout
    assert "Traceback" not in result.stderr


def test_doctor_survives_broken_packages(other_package):
    result = call("doctor", "--json", PYTHONPATH=other_package)
    report = json.loads(result.stdout)
    assert result.returncode == 1
    assert [engine["engine"] for engine in report["engines"]] == [
        "broken_engine",
        "missing_engine",
        "sglang",
        "tensorrt-llm",
        "vllm",
    ]
    assert "RuntimeError: engine is [red]broken[/red]" in report["problems"][0]
    assert "not_there" in report["problems"][1]
    assert "policy half" in report["problems"][2]
    assert "second line" not in result.stdout
    assert "engine is [red]broken[/red]" in call("doctor", PYTHONPATH=other_package).stdout


def test_policies_lists_ours():
    result = call("policies", "--json")
    listed = json.loads(result.stdout)
    assert [policy["name"] for policy in listed] == POLICIES
    assert all(policy["summary"] and not policy["problem"] for policy in listed)
    assert {policy["distribution"] for policy in listed} == {"adaptive-spec"}
    assert [policy["name"] for policy in listed if policy["source"]] == BASELINES


def test_policies_lists_those_of_other_packages(other_package):
    listed = json.loads(call("policies", "--json", PYTHONPATH=other_package).stdout)
    theirs = {policy["name"]: policy for policy in listed}["theirs"]
    assert (theirs["summary"], theirs["distribution"]) == ("made elsewhere", "others")
    assert "others:Theirs" in call("policies", PYTHONPATH=other_package).stdout


def test_policies_fits_a_narrow_terminal():
    result = call("policies", COLUMNS="60")
    assert max(map(len, result.stdout.splitlines())) <= 60


@pytest.mark.parametrize(
    ("name", "text"),
    [("c.yaml", "mode: shadow\n"), ("c.json", '{"mode": "shadow"}'), ("c.yml", "{mode: shadow}")],
)
def test_config_prints_every_value(tmp_path, name, text):
    path = write(tmp_path, text, name)
    result = call("config", path)
    assert result.returncode == 0, result.stderr
    assert "mode: shadow\npolicy: goodput\n" in result.stdout
    assert json.loads(call("config", "--json", path).stdout)["trace"]["directory"] is None


def test_config_prints_what_it_reads(tmp_path):
    first = call("config", write(tmp_path, "mode: shadow\npolicy: static\noptions: {k: 2}\n"))
    again = call("config", write(tmp_path, first.stdout))
    assert (again.returncode, again.stdout) == (0, first.stdout)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("mood: on\n", ["mood", "keys are mode, policy"], id="unknown key"),
        pytest.param("", ["expected an object"], id="empty"),
        pytest.param("policy: nonesuch\n", ["nonesuch", "goodput"], id="unknown policy"),
        pytest.param("policy: '.:x'\n", ["'.:x'"], id="relative path"),
    ],
)
def test_config_errors_are_one_line(tmp_path, text, expected):
    result = call("config", write(tmp_path, text))
    assert_one_line_error(result)
    for part in expected:
        assert part in result.stderr


def test_config_names_a_file_it_cannot_read(tmp_path):
    result = call("config", tmp_path)
    assert_one_line_error(result)
    assert str(tmp_path) in result.stderr


def assert_one_line_error(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_finds_the_checkout_around_a_folder(tmp_path):
    for file in (SCRIPT, MODELS):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    inside = tmp_path / "docs"
    assert demo_script([inside, tmp_path]) == tmp_path / SCRIPT


def test_says_where_the_demo_is_if_this_is_no_checkout(tmp_path):
    with pytest.raises(AdaptiveSpecError, match="run this command in a clone"):
        demo_script([tmp_path])


def test_this_checkout_has_a_demo(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert demo_script().is_file()
