"""Answers of the real model under vLLM, and what a head reads of the target meanwhile.

    python -m benchmarks.real_model.answers MODEL FOLDER --measured
    python -m benchmarks.real_model.answers MODEL FOLDER --each 200 --seed 1 --dtype bfloat16

FOLDER gets a file `part-N.safetensors` for each 128 instructions; a run goes on behind the parts
that are there. A row is a request; of a talk, each turn is one, behind the turns before.

    tokens   [T] int32, prompts and answers end to end
    streams  [T, layers, width] bf16, zeros at the last token of a request
    prompt, output, kind [R] int32, tokens of each and index into KINDS; temperature [R] float32
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .features import Recorder
from .instructions import KINDS, Instruction, drawn, measured

PART = 128
MOST_TOKENS = 160
LONGEST = 2048
Asked = tuple[Instruction, float]


@dataclass(frozen=True, eq=False)
class Answer:
    """A request: token numbers of prompt and output, and [tokens, layers, width] streams."""

    kind: str
    temperature: float
    prompt: list[int]
    output: list[int]
    streams: torch.Tensor


class Model:
    """The target in a vLLM engine of this process, on a CPU.

    Args:
        folder: of the target.
        speculative: vLLM's `speculative_config`; None: no drafter.
        dtype: of weights and sums.
    """

    def __init__(
        self, folder: Path, speculative: dict[str, Any] | None = None, dtype: str = "float32"
    ) -> None:
        for name, value in {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "3",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            # As many threads as OMP_NUM_THREADS says; else one waits for the other on busy cores.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }.items():
            os.environ.setdefault(name, value)
        from vllm import LLM

        self.engine = LLM(
            model=str(folder),
            dtype=dtype,
            max_model_len=LONGEST,
            max_num_seqs=PART,
            enforce_eager=True,
            enable_prefix_caching=False,
            speculative_config=speculative,
            disable_log_stats=speculative is None,
        )
        self._recorder = Recorder(self.engine) if speculative is None else None

    def prompt(self, said: Sequence[dict[str, str]]) -> list[int]:
        """Return a talk as a prompt, in the model's template."""
        tokenizer = self.engine.get_tokenizer()
        text = tokenizer.apply_chat_template(list(said), add_generation_prompt=True, tokenize=False)
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return tokens

    def answer(self, asked: Sequence[Asked], most: int = MOST_TOKENS) -> Iterator[Answer]:
        """Answer instructions, each at its temperature; yields rows, talks turn by turn."""
        from vllm import SamplingParams

        said: list[list[dict[str, str]]] = [[] for _ in asked]
        for turn in range(max(len(each.turns) for each, _ in asked)):
            rows = [at for at, (each, _) in enumerate(asked) if len(each.turns) > turn]
            for at in rows:
                said[at].append({"role": "user", "content": asked[at][0].turns[turn]})
            prompts = [self.prompt(said[at]) for at in rows]
            made = self.engine.generate(
                [{"prompt_token_ids": prompt} for prompt in prompts],
                # Without seeds: vLLM 0.32 on a CPU does not serve all seeded requests.
                [SamplingParams(temperature=asked[at][1], max_tokens=most) for at in rows],
                use_tqdm=False,
            )
            for at, prompt, output in zip(rows, prompts, made, strict=True):
                tokens = list(output.outputs[0].token_ids)
                said[at].append({"role": "assistant", "content": output.outputs[0].text})
                instruction, temperature = asked[at]
                streams = torch.zeros(0)
                if self._recorder is not None:
                    # A step that was planned ahead may have run past the end.
                    seen = self._recorder.take(output.request_id)
                    seen = seen[: len(prompt) + len(tokens) - 1]
                    streams = torch.cat([seen, torch.zeros_like(seen[:1])])
                yield Answer(instruction.kind, temperature, prompt, tokens, streams)


def write_answers(model: Model, asked: Iterable[Asked], folder: Path) -> None:
    """Answer part by part into `folder`; parts that are there are left out."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(_parts(asked)):
        file = folder / f"part-{number:03}.safetensors"
        if file.exists():
            continue
        rows = list(model.answer(part))
        made = {
            "tokens": torch.tensor([t for row in rows for t in row.prompt + row.output]).int(),
            "streams": torch.cat([row.streams for row in rows]),
            "prompt": torch.tensor([len(row.prompt) for row in rows]).int(),
            "output": torch.tensor([len(row.output) for row in rows]).int(),
            "kind": torch.tensor([list(KINDS).index(row.kind) for row in rows]).int(),
            "temperature": torch.tensor([row.temperature for row in rows]),
        }
        save_file(made, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)
        print(f"{file}: {int(made['output'].sum())} tokens of {len(rows)} answers", flush=True)


def _parts(asked: Iterable[Asked]) -> Iterator[list[Asked]]:
    rows = iter(asked)
    while part := list(itertools.islice(rows, PART)):
        yield part


def training(each: int, seed: int) -> Iterator[Asked]:
    """Give instructions to train on, kinds in turn; every second one is answered greedily."""
    kinds = [itertools.islice(drawn(kind, measured=False, seed=seed), each) for kind in KINDS]
    for number, row in enumerate(zip(*kinds, strict=True)):
        for instruction in row:
            yield instruction, (0.0, 0.7)[number % 2]


def main() -> None:
    """Parse and answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    told = "those that are measured: each at T = 0, every second at T = 0.7"
    parser.add_argument("--measured", action="store_true", help=told)
    parser.add_argument("--each", type=int, default=200, help="instructions of a kind to train on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    asked: Iterable[Asked] = training(given.each, given.seed)
    if given.measured:
        asked = [(each, 0.0) for each in measured()] + [(each, 0.7) for each in measured()[::2]]
    write_answers(Model(given.model, dtype=given.dtype), asked, given.folder)


if __name__ == "__main__":
    main()
