"""Train an EAGLE-3 head on the real model's own answers, on a CPU.

    python -m benchmarks.real_model.train MODEL ANSWERS HEAD --steps 3000 --minutes 40

ANSWERS is a folder of `benchmarks.real_model.answers`. Every pass learns the target's own
distribution at the position that it drafts for, over the head's vocabulary. A run that is stopped
after `--minutes`, or otherwise, goes on from HEAD/checkpoint when it is called again, with the
answers that are there by then.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from .head import Head, Target, common_tokens
from .instructions import KINDS

CONTEXT = 64
"""Rows of a prompt that are kept, before the answer."""
BATCH = 4
TOLD_PASSES = 3
WARM_UP = 50
KEPT_OUT = 96
"""Answers that are not trained on, for the lines that are printed."""


@dataclass(frozen=True, eq=False)
class Rows:
    """One answer after the end of its prompt: tokens [T], streams [T, layers, width]."""

    kind: str
    temperature: float
    tokens: Tensor
    streams: Tensor
    context: int


def read_rows(folder: Path, context: int = CONTEXT) -> list[Rows]:
    """Read all parts of a folder; of each prompt the last `context` tokens."""
    from safetensors import safe_open

    kinds, found = list(KINDS), []
    for file in sorted(folder.glob("part-*.safetensors")):
        with safe_open(file, framework="pt") as part:
            tokens, streams = part.get_tensor("tokens"), part.get_tensor("streams")
            small = {name: part.get_tensor(name) for name in ("prompt", "output", "kind")}
            heat = part.get_tensor("temperature").tolist()
        at = 0
        for row, (prompt, output, kind) in enumerate(
            zip(*(each.tolist() for each in small.values()), strict=True)
        ):
            kept = min(prompt, context)
            whole = slice(at + prompt - kept, at + prompt + output)
            at += prompt + output
            if output >= 8:
                found.append(
                    Rows(
                        kinds[kind],
                        round(heat[row], 3),
                        tokens[whole].long().clone(),
                        streams[whole].clone(),
                        kept,
                    )
                )
    return found


def batch_of(rows: Sequence[Rows]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad: tokens [B, T], streams [B, T, layers, width], and [B, T] where the token is output."""
    tokens = torch.nn.utils.rnn.pad_sequence([each.tokens for each in rows], batch_first=True)
    streams = torch.nn.utils.rnn.pad_sequence([each.streams for each in rows], batch_first=True)
    output = torch.zeros_like(tokens, dtype=torch.bool)
    for at, each in enumerate(rows):
        output[at, each.context : len(each.tokens)] = True
    return tokens, streams.float(), output


def loss_of(head: Head, rows: Sequence[Rows], passes: int) -> tuple[Tensor, list[float]]:
    """Return the mean cross-entropy over passes, and how often each pass has the likeliest token.

    The latter asks for agreement with the target on the tokens before, which a chain has only
    where its earlier drafts are right.
    """
    tokens, streams, output = batch_of(rows)
    last = tokens.shape[1] - 1 - passes  # rows whose every pass has its tokens
    with torch.no_grad():
        said = head.target.logits(streams[:, :, -1], head.vocabulary)
        probability = said.softmax(-1)
    position = torch.arange(last)
    before: list[tuple[Tensor, Tensor]] = []
    hidden = head.read(streams[:, :last])
    losses, right = [], []
    for number in range(passes):
        normed, hidden = head(
            tokens[:, 1 + number : 1 + number + last], hidden, position + number, before
        )
        # Row p drafts x[p + 2 + number], which the target says at p + 1 + number.
        at = slice(1 + number, 1 + number + last)
        counted = output[:, 2 + number : 2 + number + last]
        logits = head.logits(normed[counted]).float()
        wanted = probability[:, at][counted]
        losses.append(functional.cross_entropy(logits, wanted))
        agree = logits.argmax(-1) == wanted.argmax(-1)
        right.append(float(agree.float().mean()))
    weights = [0.8**number for number in range(passes)]
    total = sum(w * each for w, each in zip(weights, losses, strict=True)) / sum(weights)
    assert isinstance(total, Tensor)
    return total, right


def learning_rate(step: int, steps: int, highest: float) -> float:
    """Linear warm-up, then a half cosine to a twentieth."""
    if step < WARM_UP:
        return highest * (step + 1) / WARM_UP
    share = min((step - WARM_UP) / max(steps - WARM_UP, 1), 1.0)
    return highest * (0.05 + 0.95 * (1 + math.cos(math.pi * share)) / 2)


class Checkpoint:
    """State of a training, in the format of safetensors."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "checkpoint"  # vLLM loads all that end in .safetensors

    def vocabulary(self) -> Tensor | None:
        """Return the head's vocabulary; None where there is no checkpoint."""
        from safetensors import safe_open

        if not self._file.exists():
            return None
        with safe_open(self._file, framework="pt") as file:
            return file.get_tensor("vocabulary")

    def save(self, head: Head, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Write weights and both moments."""
        from safetensors.torch import save_file

        made = {"step": torch.tensor(step), "vocabulary": head.vocabulary}
        for name, weight in head.named_parameters():
            made[f"weight.{name}"] = weight.detach()
            for moment in ("exp_avg", "exp_avg_sq"):
                made[f"{moment}.{name}"] = optimizer.state[weight][moment]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        save_file(made, self._file.with_suffix(".new"))
        self._file.with_suffix(".new").replace(self._file)

    def load(self, head: Head, optimizer: torch.optim.Optimizer) -> int:
        """Restore; return the step, 0 where there is none."""
        from safetensors.torch import load_file

        if not self._file.exists():
            return 0
        made = load_file(self._file)
        for name, weight in head.named_parameters():
            weight.data.copy_(made[f"weight.{name}"])
            optimizer.state[weight] = {
                "step": made["step"].float(),
                **{moment: made[f"{moment}.{name}"] for moment in ("exp_avg", "exp_avg_sq")},
            }
        return int(made["step"])


def begin(head: Head, folder: Path, sample: Sequence[Rows]) -> None:
    """Begin with the target's last layer, behind its last stream scaled to 1.

    A row reads the newest token through attention alone. So its q and k of the embedding are
    alike, and it sees itself. The norms take any scale, but Adam's steps are of one size. Of what
    was tried for 70 steps, this came furthest (held-out loss 3.95; q and k not alike 4.09, streams
    not scaled 4.55, random weights 4.40 and more).
    """
    from safetensors import safe_open

    size = torch.cat([row.streams[1:-1, -1].float() for row in sample]).square().mean(-1).sqrt()
    scale, width = float(size.median()), head.target.config["hidden_size"]
    last = f"model.layers.{head.target.config['num_hidden_layers'] - 1}"
    layer = head.midlayer
    with safe_open(folder / "model.safetensors", framework="pt") as file, torch.no_grad():

        def of(name: str) -> Tensor:
            return file.get_tensor(f"{last}.{name}.weight").float()

        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(layer.self_attn, name).weight
            weight[:, :width].normal_(std=0.06)  # the embedding, whose norm is new
            weight[:, width:] = of(f"self_attn.{name}")
        keys = layer.self_attn.k_proj.weight[:, :width].unflatten(0, (layer.self_attn.groups, -1))
        share = layer.self_attn.heads // layer.self_attn.groups
        layer.self_attn.q_proj.weight[:, :width] = 0.5 * keys.repeat_interleave(share, 0).flatten(
            0, 1
        )
        layer.self_attn.o_proj.weight.copy_(of("self_attn.o_proj") / scale)
        for name in ("gate_proj", "up_proj", "down_proj"):
            weight = getattr(layer.mlp, name).weight
            weight.copy_(of(f"mlp.{name}")[: weight.shape[0], : weight.shape[1]])
        layer.mlp.down_proj.weight.div_(scale)
        layer.hidden_norm.weight.copy_(of("input_layernorm"))
        layer.post_attention_layernorm.weight.copy_(of("post_attention_layernorm"))
        head.norm.weight.copy_(head.target.norm)
        head.fc.weight.zero_()
        head.fc.weight[:, -width:] = torch.eye(width)


def train(
    head: Head,
    rows: list[Rows],
    folder: Path,
    *,
    steps: int,
    minutes: float,
    highest: float,
    passes: int = 2,
) -> None:
    """Train until `steps`, or for so long; then write the head."""
    kept_out, rows = rows[:KEPT_OUT], rows[KEPT_OUT:]
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=highest, betas=(0.9, 0.95), weight_decay=0.01
    )
    checkpoint = Checkpoint(folder)
    step = checkpoint.load(head, optimizer)
    began = saved = time.monotonic()
    losses = []
    while step < steps and time.monotonic() - began < 60 * minutes:
        draw = torch.Generator().manual_seed(step)
        chosen = torch.randint(len(rows), (BATCH,), generator=draw).tolist()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, highest)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, _ = loss_of(head, [rows[each] for each in chosen], passes)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        step += 1
        if step % 100 == 0:
            mean = sum(losses) / len(losses)
            print(f"step {step}: {time.monotonic() - began:.0f} s, loss {mean:.3f}", flush=True)
            losses.clear()
        if time.monotonic() - saved > 240:
            checkpoint.save(head, optimizer, step)
            saved = time.monotonic()
            print(f"  kept out: {agreement_of(head, kept_out)}", flush=True)
    checkpoint.save(head, optimizer, step)
    head.save(folder)
    print(f"step {step} of {steps}: {json.dumps(agreement_of(head, kept_out))}")


def agreement_of(head: Head, rows: Sequence[Rows]) -> dict[str, list[float]]:
    """Return how often each pass agrees with the target, by kind."""
    found = {}
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for kind in KINDS:
            mine = [each for each in rows if each.kind == kind]
            if mine:
                found[kind] = [round(each, 3) for each in loss_of(head, mine, TOLD_PASSES)[1]]
    return found


def main() -> None:
    """Parse and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--passes", type=int, default=2, help="of a chain, that are trained")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=1536)
    given = parser.parse_args()
    torch.manual_seed(0)
    target = Target.read(given.model)
    rows = read_rows(given.answers)
    outputs = [each.tokens[each.context :] for each in rows]
    vocabulary = Checkpoint(given.head).vocabulary()
    if vocabulary is None:
        vocabulary = common_tokens(outputs, given.vocabulary, len(target.embedding))
    covered = float(torch.isin(torch.cat(outputs), vocabulary).float().mean())
    print(f"{len(rows)} answers, {sum(map(len, outputs))} tokens, {covered:.1%} in the vocabulary")
    head = Head(target, vocabulary, given.inner)
    begin(head, given.model, rows[:KEPT_OUT])
    train(
        head,
        rows,
        given.head,
        steps=given.steps,
        minutes=given.minutes,
        highest=given.rate,
        passes=given.passes,
    )


if __name__ == "__main__":
    main()
