"""The `vllm serve` in what people paste."""

import itertools
import json
import re
import time
from pathlib import Path

import pytest

from adaptive_spec.adapters.vllm.pasted_command import read_pasted
from adaptive_spec.errors import ConfigError
from tests.refused import refused

DRAFTS = '{"method":"ngram","num_speculative_tokens":4}'
WORDS = ["M", "--max-model-len", "256", "--speculative-config", DRAFTS]
PLAIN = f"vllm serve M --max-model-len 256 --speculative-config '{DRAFTS}'"
ARGUMENTS = PLAIN.removeprefix("vllm serve ")
RUN = "docker run -d --gpus all -p 8000:8000 --name vllm"
TWO = "VLLM_USE_V1=1 VLLM_PLUGINS='two words'"
OTHER = {"VLLM_USE_V1": "1", "VLLM_PLUGINS": "two words"}


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        pytest.param(PLAIN, {}, id="plain"),
        pytest.param(ARGUMENTS, {}, id="arguments alone"),
        pytest.param(PLAIN.replace(" --", " \\\n  --"), {}, id="lines"),
        pytest.param(PLAIN.replace(" --", " \\\r\n  --"), {}, id="lines of Windows"),
        pytest.param(f"{TWO} {PLAIN}  # a comment", OTHER, id="assignments"),
        pytest.param(f"export {TWO}\n{PLAIN}", OTHER, id="export"),
        pytest.param(f'env -u X VLLM_USE_V1=1 VLLM_PLUGINS="two words" {PLAIN}', OTHER, id="env"),
        pytest.param(
            f"cd /opt && source .venv/bin/activate && VLLM_USE_V1=1 nohup {PLAIN} > log 2>&1 &",
            {"VLLM_USE_V1": "1"},
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
            f"{RUN} --env VLLM_USE_V1=1 -e VLLM_PLUGINS='two words' vllm-openai {ARGUMENTS}",
            OTHER,
            id="docker",
        ),
        pytest.param(f"podman run --rm image vllm serve {ARGUMENTS}", {}, id="podman"),
        pytest.param(
            "services:\n  vllm:\n    image: vllm/vllm-openai\n    environment:\n"
            "      - VLLM_USE_V1=1\n      - VLLM_PLUGINS=two words\n"
            f"    command: >\n      {ARGUMENTS}\n",
            OTHER,
            id="compose",
        ),
        pytest.param(
            "spec:\n  containers:\n  - name: vllm\n    command: [vllm, serve]\n    args:\n"
            "    - M\n    - --max-model-len\n    - 256\n    - --speculative-config\n"
            f"    - '{DRAFTS}'\n    env:\n    - {{name: VLLM_USE_V1, value: '1'}}\n"
            "    - {name: VLLM_PLUGINS, value: two words}\n",
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


ALLOWED = {"VLLM_PLUGINS": "adaptive_spec"}
PUBLIC = {
    "docker of vLLM's documentation": (
        """docker run --runtime nvidia --gpus all -v ~/.cache/huggingface:/root/.cache \\
        --env "HF_TOKEN=$HF_TOKEN" -p 8000:8000 --ipc=host vllm/vllm-openai:latest """
        + ARGUMENTS,
        {},
    ),
    "Kubernetes of vLLM's documentation": (
        f"""apiVersion: v1
kind: Service
metadata: {{name: m}}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: m
        image: vllm/vllm-openai:latest
        command: ["/bin/sh", "-c"]
        args:
        - |
          vllm serve M --max-model-len 256 \\
            --speculative-config '{DRAFTS}'
        env:
        - name: HF_TOKEN
          valueFrom: {{secretKeyRef: {{name: hf, key: token}}}}
        - {{name: VLLM_PLUGINS, value: adaptive_spec}}
""",
        ALLOWED,
    ),
    "initContainer, sidecar and a variable of Kubernetes": (
        f"""spec:
  initContainers:
  - {{image: busybox, command: [sh, -c], args: ["cp -r /from /to"]}}
  containers:
  - {{image: prom/exporter, args: ["--listen=:9090"]}}
  - image: vllm/vllm-openai
    args: [--model=$(NAME), --max-model-len, 256, --speculative-config, '{DRAFTS}']
    env: [{{name: NAME, value: M}}]
""",
        {},
    ),
    "production-stack": (
        f"""servingEngineSpec:
  modelSpec:
  - name: m
    modelURL: M
    env: [{{name: VLLM_PLUGINS, value: adaptive_spec}}]
    vllmConfig:
      maxModelLen: 256
      extraArgs: [--speculative-config, '{DRAFTS}']
""",
        ALLOWED,
    ),
    "llm-d": (
        f"""modelArtifacts: {{uri: "hf://M", name: other}}
decode:
  containers:
  - image: llm-d
    modelCommand: vllmServe
    args: [--max-model-len, "256", --speculative-config, '{DRAFTS}']
prefill:
  containers: [{{image: llm-d, modelCommand: vllmServe, args: []}}]
""",
        {},
    ),
    "Dockerfile": (
        f"""FROM vllm/vllm-openai:v0.32.0
ENV VLLM_PLUGINS=adaptive_spec HF_HOME=/models
RUN pip install adaptive-spec
ENTRYPOINT ["vllm", "serve"]
CMD ["M", "--max-model-len", "256", \\
     "--speculative-config", {json.dumps(DRAFTS)}]
""",
        ALLOWED,
    ),
    "systemd": (
        f"""[Service]
Environment=VLLM_PLUGINS=adaptive_spec "MODEL=M"
ExecStart=/opt/vllm/bin/vllm serve ${{MODEL}} --max-model-len 256 \\
    --speculative-config '{DRAFTS}'
Restart=always
""",
        ALLOWED,
    ),
    "compose with a shell and a default": (
        f"""services:
  web: {{image: nginx, command: [nginx, -g, daemon off;]}}
  vllm:
    image: ${{IMAGE:-vllm/vllm-openai}}
    entrypoint: [bash, -c]
    environment: {{HF_TOKEN: "${{HF_TOKEN}}", LENGTH: "256", VLLM_PLUGINS: adaptive_spec}}
    command:
    - exec vllm serve ${{NAME:-M}} --max-model-len $$LENGTH --speculative-config '{DRAFTS}'
""",
        ALLOWED,
    ),
    "uv": (f"uv run --with vllm --python 3.12 {PLAIN}", {}),
    "Slurm": (
        f"""#!/bin/bash
#SBATCH --gres=gpu:8
export VLLM_PLUGINS=adaptive_spec MASTER=$(hostname)
ARGS="--max-model-len 256"
srun --ntasks=1 numactl --membind=0 vllm serve M $ARGS \\
  --speculative-config '{DRAFTS}' --port $PORT --api-key=$KEY""",
        ALLOWED,
    ),
    "a shell in a container": (
        "docker run --entrypoint bash -it vllm/vllm-openai -c "
        f'"pip install x && vllm serve M --max-model-len 256 --speculative-config '
        f"'{DRAFTS}'\"".replace('{"', '{\\"').replace('":', '\\":').replace(',"', ',\\"').replace(
            ':"', ':\\"').replace('",', '\\",'),
        {},
    ),
    "a page of documentation": (f"```console\n$ {PLAIN}\n```\n", {}),
    "here-document": (f"cat > c.yaml <<'EOF'\nmode: 'on\nEOF\n{PLAIN}", {}),
}  # fmt: skip


@pytest.mark.parametrize("shape", PUBLIC)
def test_what_is_published_is_understood(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "IMAGE", "NAME", "PORT", "KEY"):
        monkeypatch.delenv(name, raising=False)
    text, environment = PUBLIC[shape]
    found = read_pasted(text)
    assert [word.removeprefix("--model=") for word in found.words] == WORDS
    assert found.environment == environment


ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SHOWN = [
    pytest.param(block, id=f"{page.name} {number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL))
    if re.search(r"vllm serve (?!\.\.\.)|docker run", block)
]
DEPLOYED = sorted(
    path for path in (ROOT / "deploy").rglob("*.y*ml") if "--speculative-config" in path.read_text()
)


@pytest.mark.parametrize("text", SHOWN)
def test_every_servers_command_of_our_pages_is_understood(text: str) -> None:
    assert '"adaptive_spec"' in " ".join(read_pasted(text).words)


def test_servers_of_other_engines_on_our_pages_are_named_with_their_page() -> None:
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        if re.search(r"^[^#\n]*(-m sglang\.launch_server|trtllm-serve) \S", block, re.MULTILINE)
    ]
    assert len(blocks) >= 3
    for block in blocks:
        with refused(
            ConfigError, match=r"no command of vLLM's.*see docs/(sglang|tensorrt_llm)\.md"
        ):
            read_pasted(block)


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: path.name)
def test_every_server_of_deploy_is_understood(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "deepseek-ai/DeepSeek-V3.2")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    words = read_pasted(path.read_text()).words
    options = dict(itertools.pairwise(words))
    assert json.loads(options["--additional-config"])["adaptive_spec"]
    assert json.loads(options["--speculative-config"])["num_speculative_tokens"] > 0
    assert words[0].count("/") == 1


def test_only_what_decides_is_taken_over() -> None:
    set_by_it = "HF_ENDPOINT=h HTTPS_PROXY=p PYTHONPATH=/x LD_PRELOAD=y VLLM_USE_V1=1"
    found = read_pasted(f"{set_by_it} {PLAIN}")
    assert found.environment == {"VLLM_USE_V1": "1"}
    assert found.ignored == ("HF_ENDPOINT", "HTTPS_PROXY", "LD_PRELOAD", "PYTHONPATH")


GROWTH = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    "text",
    [
        *(f"image: x\n{rest}" for rest in (GROWTH, "a: &a [*a]", "a: &a {b: *a}")),
        *("image: x\na: " + "[" * 3000, "image: x\ncommand: 2024-99-99", "command: 5"),
        *("image: x\nargs: [" + "9" * 5000 + "]", "command: true", 'args: "half \'quoted"'),
        *("vllm serve a\0b", "vllm serve \x1b[31m", "x" * 10**6, "A=xx\n" + "A=$A$A\n" * 40),
        *("docker run " * 9000, "vllm serve " + "`" * 9001, "A=$A; vllm serve $A"),
        *("image: x\n? [a]\n: b", "args: [.inf]", 'command: ["\\ud800"]', "---\nimage: x\n" * 9000),
    ],
    ids=itertools.count(),
)
def test_a_hostile_text_is_one_line_at_once(text: str) -> None:
    began = time.process_time()
    with refused(ConfigError, "--recipe: "):
        read_pasted(text)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("text", ["x " * 50_000, "vllm serve " + "\\" * 90_000, ' {"' * 30_000])
def test_a_long_text_takes_no_time(text: str) -> None:
    began = time.process_time()
    assert read_pasted(text).words
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python3 -m sglang.launch_server --model-path M", "docs/sglang.md"),
        ("trtllm-serve M --config c.yaml", "docs/tensorrt_llm.md"),
        ("python -m dynamo.vllm --model M", "docs/quick_start.md"),
        ('vllm serve "$MODEL"', "does not say what \\$MODEL is"),
        ("vllm serve $AWS_SECRET_ACCESS_KEY", "does not say what \\$AWS_SECRET_ACCESS_KEY is"),
        ("vllm serve M --speculative-config ‘{“method”: “ngram”}’", "typographic quotes"),
        ("vllm serve ...", "the whole command"),
        ("vllm serve M --revision $(git rev-parse HEAD)", "does not say what"),
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
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with refused(ConfigError, match=said):
        read_pasted(text)


def test_a_variable_of_the_environment_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "M")
    assert read_pasted("vllm serve $MODEL").words == ["M"]
