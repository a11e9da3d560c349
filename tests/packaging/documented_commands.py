"""The commands that README.md and docs/ show, and where they are executed, or why not."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

STAND_INS = (
    (r"\b(MY_)?TRACES?(/|\b)|\btraces/0-static\b|(?<= advise )traces?\b", "recorded"),
    (r"(?<=^adaptive-spec advise )", "--tokens 200 --resamplings 2 "),
    (r"--tokens 60000\b", "--tokens 2000"),
    (r"(?<=^adaptive-spec replay\b)(?!.*--(tokens|load))", " --tokens 2000"),
)
"""What test_docs.py gives in place of files of the user, and of minutes."""

EXECUTED_ELSEWHERE = {
    r"curl localhost:8000|json=|key=": "tests/vllm/test_documented_requests.py",
    r"adaptive-spec (top |prove |breakeven localhost)": "tests/vllm/test_documented_requests.py",
    r"adaptive-spec replay$": "tests/sim/test_replay_command.py",
    r"promtool check rules ": "tests/core/operation/test_alerts.py",
    r"adaptive-spec profile ": "tests/sim/hardware/test_from_trace.py",
    r"adaptive-spec (new-policy |replay --policy my_rule)": "tests/cli/test_first_hour.py",
}
"""Test by pattern of the beginning of a command."""

NOT_EXECUTED = {
    r"pip (install|wheel) |pip install$": "tests/packaging/test_wheel.py installs the built wheel "
    "instead",
    r"((PYTHONPATH|VLLM_\w+)=\S+ )*vllm serve |--speculative-config ": "needs a GPU and a "
    "downloaded model; tests/vllm serves small models with the same options; test_docs.py reads "
    "the configuration",
    r"python -m sglang\.launch_server |cat > |"
    r"export (SGLANG_PLUGINS|ADAPTIVE_SPEC_(ADMIN_KEY|SGLANG_TREES))=": (
        "needs a GPU and a model; tests/sglang launches the same algorithms on a CPU"
    ),
    r"TLLM_ADAPTIVE_SPEC=|adaptive-spec trtllm |python benchmarks/tensorrt_llm_gpu": "needs a GPU "
    "with TensorRT-LLM; tests/tensorrt_llm installs the hook into a copy",
    r"curl .*localhost:30000": "needs a running SGLang; tests/sglang sends the same requests",
    r"guidellm |vllm bench ": "needs a running server and minutes; tried by hand on a CPU",
    r"docker |kubectl |MODEL=": "needs containers or a cluster; `make check` lints the files",
    r"make (bench(-quick)?|check|demo-quick|gpu|site|test|test-trtllm .*)$": "takes "
    "minutes, or needs a GPU; tests/demo, tests/bench_* and test_docs.py test the parts",
    r"pytest ": "is itself a run of tests",
    r"python scripts/site_pictures": "test_docs.py compares the pictures with the code",
    r"adaptive-spec (sweep|report) ": "takes minutes; tests/cli and tests/sim run small sweeps",
    r"adaptive-spec doctor --\w": "reads a source tree of an engine; tests/sglang and "
    "tests/tensorrt_llm check small ones",
    r"python (-m )?benchmarks[/.]": "measures for minutes to hours, or "
    "needs the environment of an engine; tests/bench_* run the parts",
}
"""Reason by pattern of the beginning of a command; test_docs.py executes every other one."""


def all_commands(root: Path) -> list[str]:
    """Return every command of README.md, CONTRIBUTING.md and docs/ once."""
    pages = (root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md")))
    return sorted({command for page in pages for command in commands(page.read_text())})


def commands(page: str) -> Iterator[str]:
    """Yield the commands in the `sh` blocks of a page, without comments, one line each."""
    for indent, block in re.findall(r"^( *)```sh\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE):
        text = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        text = re.sub(r"<<'(\w+)'\n.*?\n\1\n", "\n", text, flags=re.DOTALL)
        pending = ""
        for line in text.replace("\\\n", " ").splitlines():
            pending = f"{pending}\n{line}" if pending else line
            try:
                words = shlex.split(pending, comments=True)
            except ValueError:  # a quotation goes on in the next line
                continue
            if words:
                yield shlex.join(words)
            pending = ""
        assert not pending, f"unfinished command: {pending}"


def reason_not_executed(command: str) -> str | None:
    """Return the pattern that says why test_docs.py does not execute a command, or None."""
    plain = command.replace("'", "")
    patterns = (*EXECUTED_ELSEWHERE, *NOT_EXECUTED)
    return next((pattern for pattern in patterns if re.match(pattern, plain)), None)


def with_stand_ins(command: str) -> str:
    """Return the command with what test_docs.py can give it."""
    for pattern, given in STAND_INS:
        command = re.sub(pattern, given, command)
    return command
