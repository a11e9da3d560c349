"""The `vllm serve` in what people paste."""

import pytest

from adaptive_spec.adapters.vllm.pasted_command import read_pasted
from adaptive_spec.errors import ConfigError
from tests.refused import refused

DRAFTS = '{"method":"ngram","num_speculative_tokens":4}'
WORDS = ["M", "--max-model-len", "256", "--speculative-config", DRAFTS]
PLAIN = f"vllm serve M --max-model-len 256 --speculative-config '{DRAFTS}'"
ARGUMENTS = PLAIN.removeprefix("vllm serve ")
RUN = "docker run -d --gpus all -p 8000:8000 --name vllm"
OTHER = {"A": "1", "B": "two words"}


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        pytest.param(PLAIN, {}, id="plain"),
        pytest.param(ARGUMENTS, {}, id="arguments alone"),
        pytest.param(PLAIN.replace(" --", " \\\n  --"), {}, id="lines"),
        pytest.param(PLAIN.replace(" --", " \\\r\n  --"), {}, id="lines of Windows"),
        pytest.param(f"A=1 B='two words' {PLAIN}  # a comment", OTHER, id="assignments"),
        pytest.param(f"export A=1\nexport B='two words'\n{PLAIN}", OTHER, id="export"),
        pytest.param(f'env -u X A=1 B="two words" {PLAIN}', OTHER, id="env"),
        pytest.param(
            f"cd /opt && source .venv/bin/activate && A=1 nohup {PLAIN} > log 2>&1 &",
            {"A": "1"},
            id="chain",
        ),
        pytest.param(
            f"#!/bin/bash\nset -eu\nMODEL=M\nSPEC='{DRAFTS}'\n"
            'exec vllm serve "$MODEL" --max-model-len 256 --speculative-config "${SPEC}" | tee log',
            {},
            id="variables",
        ),
        pytest.param(PLAIN.replace(f"'{DRAFTS}'", f'"{DRAFTS}"'.replace('{"', '{\\"').replace(
            '":', '\\":').replace(',"', ',\\"').replace(':"', ':\\"').replace('",', '\\",')
        ), {}, id="escaped quotes"),
        pytest.param(PLAIN.replace("'", ""), {}, id="no quotes around JSON"),
        pytest.param(
            f"{RUN} --env A=1 -e B='two words' vllm/vllm-openai:v0.32.0 {ARGUMENTS}",
            OTHER,
            id="docker",
        ),
        pytest.param(f"podman run --rm image vllm serve {ARGUMENTS}", {}, id="podman"),
        pytest.param(
            "services:\n  vllm:\n    image: vllm/vllm-openai\n    environment:\n"
            f"      - A=1\n      - B=two words\n    command: >\n      {ARGUMENTS}\n",
            OTHER,
            id="compose",
        ),
        pytest.param(
            "spec:\n  containers:\n  - name: vllm\n    command: [vllm, serve]\n    args:\n"
            "    - M\n    - --max-model-len\n    - 256\n    - --speculative-config\n"
            f"    - '{DRAFTS}'\n    env:\n    - {{name: A, value: '1'}}\n"
            "    - {name: B, value: two words}\n",
            OTHER,
            id="Kubernetes",
        ),
        pytest.param(
            f"python3 -m vllm.entrypoints.openai.api_server {ARGUMENTS}", {}, id="module"
        ),
    ],
)  # fmt: skip
def test_the_same_server_is_found_in_every_form(text: str, environment: dict[str, str]) -> None:
    found = read_pasted(text)
    assert found.words == WORDS
    assert found.environment == environment


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python3 -m sglang.launch_server --model-path M", "docs/sglang.md"),
        ("trtllm-serve M --config c.yaml", "docs/tensorrt_llm.md"),
        ("python -m dynamo.vllm --model M", "docs/quick_start.md"),
        ('vllm serve "$MODEL"', "does not say what \\$MODEL is"),
        ("vllm serve 'half quoted", "a quote ' is not closed"),
        ("cd /opt && source .venv/bin/activate", "no server's command"),
        (f"{PLAIN}; {PLAIN}", "2 servers"),
        ("image: a\nargs: [", "no YAML"),
        ("", "no server's command"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODEL", raising=False)
    with refused(ConfigError, match=said):
        read_pasted(text)


def test_a_variable_of_the_environment_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "M")
    assert read_pasted("vllm serve $MODEL").words == ["M"]
