"""The commands that README.md and docs/ show, and why some of them are not executed by a test."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

NOT_EXECUTED = {
    r"pip install |pip install$": "tests/packaging/test_wheel.py installs the built wheel instead",
    r"(VLLM_PLUGINS=\S+ )?vllm serve |--speculative-config ": "needs a GPU and a downloaded model; "
    "tests/vllm serves small models with the same options; test_docs.py reads the configuration",
    r"python -m sglang\.launch_server |export SGLANG_PLUGINS=|cat > ": "needs a GPU and a model; "
    "tests/sglang launches the same algorithms on a CPU",
    r"TLLM_ADAPTIVE_SPEC=|adaptive-spec trtllm |python benchmarks/tensorrt_llm_gpu": "needs a GPU "
    "with TensorRT-LLM; tests/tensorrt_llm installs the hook into a copy",
    r"curl |json=": "needs a running server; tests/vllm and tests/sglang send the same requests",
    r"docker |MODEL=": "needs a container runtime and a GPU; `make check` lints the files",
    r"make (demo(-quick)?|gpu|test)$": "takes minutes, or needs a GPU; tests/demo, tests/bench_gpu "
    "and test_docs.py test the parts",
    r"pytest ": "is itself a run of tests",
    r"git checkout ": "describes how a figure was made at an earlier commit",
    r"python -m build|twine ": "test_wheel.py builds, and `make check` checks the packages",
    r"python scripts/site_pictures": "test_docs.py compares the pictures with the code",
    r"adaptive-spec (sweep|report|fit|evaluate|profile) ": "takes minutes, or reads a trace of the "
    "user; tests/cli and tests/sim run these commands on small inputs",
    r"adaptive-spec (advise|top) ": "reads a trace or a server of the user; tests/sim/advice and "
    "tests/cli run both on small ones",
    r"promtool ": "needs Prometheus; tests/core/operation/test_alerts.py runs it",
    r"adaptive-spec replay .*(TRACES|--trace |--oracles)": "reads a trace of the user, or takes "
    "minutes; tests/cli replays small ones",
    r"adaptive-spec doctor --\w": "reads a source tree of an engine; tests/sglang and "
    "tests/tensorrt_llm check small ones",
    r"python (-m )?benchmarks[/.]": "measures for minutes to hours, or needs the environment of an "
    "engine; tests/bench_* run the parts",
}
"""Reason by pattern of the beginning of a command; every other command is executed."""


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
    """Return the pattern that explains why a command is not executed, or None."""
    plain = command.replace("'", "")
    return next((pattern for pattern in NOT_EXECUTED if re.match(pattern, plain)), None)
