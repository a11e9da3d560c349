"""Answer of `adaptive-spec doctor --recipe`: what would be steered under a `vllm serve` command.

vLLM's own code parses the command and resolves the configuration, the model's included; names of
models decide nothing. Model runner, graphs and ranks are those that vLLM chooses on this machine.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from adaptive_spec.adapters.vllm import varlen_graphs
from adaptive_spec.adapters.vllm.capability import (
    MISSING,
    WITHOUT_MODEL,
    Support,
    advice_on_kmax,
    detect,
    lookup_placement,
)
from adaptive_spec.adapters.vllm.draft_signal.worker import WORKERS
from adaptive_spec.adapters.vllm.facts import BASE, SOURCE
from adaptive_spec.adapters.vllm.gate import requested_config
from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
from adaptive_spec.adapters.vllm.known_recipes import known_recipe
from adaptive_spec.adapters.vllm.pasted_command import Pasted, read_pasted
from adaptive_spec.adapters.vllm.rules import Setup, wrong_output
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.config import Config
from adaptive_spec.engines.doctor_rows import RecipeReport
from adaptive_spec.errors import ConfigError, UnsupportedEngineError
from adaptive_spec.step import Level

_ALIKE = 0.94
"""From which ratio on an unknown option is taken for a misspelt one."""
_ADVICE = "For further information visit"
"""Beginning of the line that pydantic adds to its reasons."""
_SECRET = re.compile("KEY|PASS|SECRET|TOKEN")
_RECURRENT_KINDS = "mamba", "mamba2", "linear_attention", "hybrid", "conv"
"""What layers with a recurrent state are called in models' configurations."""
_STEERED = {
    Level.FULL: "K per request, and draft depth",
    Level.VERIFY: "K per request; the draft depth stays Kmax",
    Level.UNIFORM: "one K per batch",
}
_ACTS = ("K per request", "one K")
"""Beginnings of `_STEERED`."""


def judge(command: str) -> RecipeReport:
    """Return what the plugin would do under this command.

    Args:
        command: what people paste (`pasted_command`), such as ``NAME=value vllm serve MODEL --flag
            value``, a compose file, or a server's arguments alone.

    Raises ConfigError if vLLM cannot make a configuration of it, UnsupportedEngineError without
    vLLM.
    """
    pasted = read_pasted(command)
    if find_spec("vllm") is None:
        raise UnsupportedEngineError(
            "--recipe needs vLLM, which makes the configuration: install it here, or call doctor "
            "where the server runs"
        )
    print("importing vLLM, up to a minute", file=sys.stderr, flush=True)
    with _logs_on_stderr():
        return _judge(pasted)


def _judge(pasted: Pasted) -> RecipeReport:
    try:
        import vllm
    except ImportError as error:
        raise UnsupportedEngineError(f"--recipe: vLLM cannot be imported: {error}") from None
    os.environ.update(pasted.environment)
    try:
        config, left_over = _configuration(pasted)
    except ConfigError as error:
        rows = known_recipe(pasted.words) if _is_unreachable(error.__cause__) else []
        if not rows:
            raise
        steered = any(said.rpartition(": ")[2].startswith(_ACTS) for _, said in rows)
        return RecipeReport(steered=steered, rows=[*rows, ("note", str(error))])
    setattr(config.scheduler_config, MISSING, SOURCE.require([BASE]).missing)
    found = detect(config, expected=True)
    tested = "tested" if VERSIONS.accepts(vllm.__version__) else f"tested are {VERSIONS.known}"
    device = config.device_config.device_type
    rows = [("engine", f"vLLM {vllm.__version__}, {tested}; on this machine ({device})")]
    if pasted.environment:
        rows.append(("environment", _said(pasted.environment)))
    if found.capability is not None and (wrong := wrong_output(Setup(config))):
        rows.append(("refused", f"vLLM's output is wrong with {wrong}; change the command"))
    rows.append(("steered", _steered(found)))
    if found.capability is not None:
        speculation = f"{found.method}, Kmax {found.capability.max_draft_tokens}"
        rows.append(("speculation", f"{speculation}, model runner {found.runner}"))
        rows.append(("full graphs", full_graphs(config)))
        own = _own(config)
        advice = advice_on_kmax(config, found)
        rows += [("Kmax", advice)] if advice else []
        if own is not None and own.second_source is not None:
            placement = lookup_placement(config, found, (*WORKERS, *WORKERS.values()))
            refused = isinstance(placement, str)
            said = f"no: {placement}" if refused else own.second_source.kind
            rows.append(("second source", said))
        if table := table_of_k(config, pasted.words):
            rows.append(("table of K", table))
        rows += [("K = 0 keeps", kept) for kept in kept_at_zero(config)]
        rows += [("note", note) for note in found.notes]
    if left_over:
        rows.append(("left out", f"{' '.join(left_over)}: no option of this vLLM"))
    return RecipeReport(steered=found.capability is not None and not found.shadow, rows=rows)


def table_of_k(vllm_config: Any, words: Sequence[str]) -> str:
    """Return what becomes of `num_speculative_tokens_per_batch_size`; empty without one."""
    name = "num_speculative_tokens_per_batch_size"
    if getattr(vllm_config.speculative_config, name, None) is not None:
        return "runs in steps that the plugin does not decide, such as after a fault"
    if any(name in word for word in words):
        return "vLLM drops it with data parallelism, and runs Kmax"
    return ""


def kept_at_zero(vllm_config: Any) -> list[str]:
    """Return the costs of a configured drafter that stay at K = 0: vLLM cannot take them back."""
    speculation, model = vllm_config.speculative_config, vllm_config.model_config
    drops = getattr(speculation, "use_eagle_block_drop", speculation.use_eagle)
    # From 0.33 on a block's hash covers the token after it, which is why it was dropped.
    looks_ahead = getattr(vllm_config, "num_hash_lookahead_tokens", 0) > 0
    kmax, requests = speculation.num_speculative_tokens, vllm_config.scheduler_config.max_num_seqs
    recurrent = model.is_hybrid or model.has_inner_state
    found = []
    if speculation.method not in WITHOUT_MODEL:
        # Of MLA and recurrent layers the size of a token is another.
        plain = not recurrent and not model.use_mla
        share = f", and {_drafters_kv(vllm_config):.1%} of the memory for KV" if plain else ""
        found.append(f"the weights of the drafter{share}")
        work = f"{_drafters_work(vllm_config):.1%} more work until the first token"
        found.append(f"the drafter reads each prompt, too: about {work}, by its layers and width")
    if lookahead := getattr(vllm_config, "num_lookahead_tokens", 0):
        most = lookahead * requests
        found.append(
            f"{lookahead} tokens of KV behind each running request, {most:,} at {requests}"
        )
    if vllm_config.cache_config.enable_prefix_caching and drops() and not looks_ahead:
        found.append("the last cached block of each prompt is computed anew")
    # ReplaySSM verifies all drafts from one state.
    if recurrent and not getattr(vllm_config.cache_config, "use_replayssm", False):
        said = f"{1 + kmax} recurrent states in place of one, for each request"
        size = state_bytes(vllm_config)
        if size is None:
            found.append(f"{said}; their size is not known on this machine")
        else:
            more = kmax * size
            found.append(
                f"{said}: at least {more / 2**20:,.1f} MiB more of each GPU's memory for KV, "
                f"{requests * more / 2**30:,.1f} GiB at {requests}"
            )
    return found


def state_bytes(vllm_config: Any) -> int | None:
    """Bytes of the recurrent state of a request on a rank, as vLLM's own classes have it.

    None where vLLM cannot tell on this machine. Padding to the size of a block comes on top.
    """
    from vllm.model_executor.models import ModelRegistry
    from vllm.v1.kv_cache_interface import MambaSpec

    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    try:
        found, _ = ModelRegistry.resolve_model_cls(model.architecture, model_config=model)
        spec = MambaSpec(
            shapes=found.get_mamba_state_shape_from_config(vllm_config),
            dtypes=found.get_mamba_state_dtype_from_config(vllm_config),
            block_size=-1,
        )
        # vLLM has no name for all that are recurrent; a layer is of one kind.
        layers = max(
            model.get_num_layers_by_block_type(parallel, kind) for kind in _RECURRENT_KINDS
        )
    except Exception:  # code of models, which may need what only a GPU's build has
        return None
    return int(layers * spec.page_size_bytes) or None


def _drafters_kv(vllm_config: Any) -> float:
    """Share of the KV memory that is the drafter's: each block holds layers of both models."""
    target, drafter = (
        model.get_num_layers(parallel) * model.get_num_kv_heads(parallel) * model.get_head_size()
        for model, parallel in (
            (vllm_config.model_config, vllm_config.parallel_config),
            (
                vllm_config.speculative_config.draft_model_config,
                vllm_config.speculative_config.draft_parallel_config or vllm_config.parallel_config,
            ),
        )
    )
    return float(drafter / (target + drafter))


def _drafters_work(vllm_config: Any) -> float:
    """Work of the drafter's layers over that of the target's, as layers x width^2."""
    speculation = vllm_config.speculative_config
    parallel = vllm_config.parallel_config
    target, drafter = (
        model.get_num_layers(parallel) * model.get_hidden_size() ** 2
        for model in (vllm_config.model_config, speculation.draft_model_config)
    )
    return float(drafter / target)


def full_graphs(vllm_config: Any) -> str:
    """Whether batches whose K differ run in full CUDA graphs, as expected before the start."""
    from vllm.config import CUDAGraphMode

    mode = vllm_config.compilation_config.cudagraph_mode
    if mode == CUDAGraphMode.NONE:
        return "no graphs are captured"
    if not varlen_graphs.has_full_decode_graphs(vllm_config):
        return f"none (cudagraph_mode={mode.name})"
    reason = varlen_graphs.uniform_reason(vllm_config, expected=True)
    return reason.removeprefix(varlen_graphs.ONE_K) or (
        "K per request; the workers confirm it at the start"
    )


def _steered(found: Support) -> str:
    if found.capability is None:
        return f"nothing: {found.inert}"
    if found.shadow:
        return f"nothing, decisions are recorded only: {', '.join(found.shadow)}"
    return _STEERED[found.capability.level]


def _said(environment: Mapping[str, str]) -> str:
    """Variables as they are set; what looks like a secret without its value."""
    return " ".join(
        f"{name}={'...' if _SECRET.search(name) else value}" for name, value in environment.items()
    )


def _under(pasted: Pasted) -> str:
    return f", with {_said(pasted.environment)}" if pasted.environment else ""


def _is_unreachable(error: BaseException | None) -> bool:
    """Whether the model's configuration could not be had, as Hugging Face's libraries say it."""
    text = str(error)
    return isinstance(error, OSError) or "huggingface.co" in text or "snapshot" in text


def _own(vllm_config: Any) -> Config | None:
    """Our configuration, if the command has one."""
    # Where vLLM has loaded the plugin, the gate has taken it out of sight.
    gated: Config | None = getattr(vllm_config.scheduler_config, ATTRIBUTE, None)
    return gated or requested_config(vllm_config.additional_config)


def _configuration(pasted: Pasted) -> tuple[Any, list[str]]:
    """Let vLLM parse the words and resolve its configuration; it, and the options it does not know.

    Raises ConfigError, one line, with vLLM's own reason.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        known, left_over, options = _parsed(pasted.words)
        for word in left_over:
            name = word.partition("=")[0].partition(".")[0].replace("_", "-")
            if near := difflib.get_close_matches(name, options, 1, _ALIKE):
                raise ConfigError(f"--recipe: {name} is no option of vLLM; did you mean {near[0]}?")
        if known.model_tag is not None:
            known.model = known.model_tag
        return AsyncEngineArgs.from_cli_args(known).create_engine_config(), left_over
    except ConfigError:
        raise
    except (SystemExit, Exception) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        said = "; ".join(line for line in lines if line and not line.startswith(_ADVICE))
        raise ConfigError(
            f"--recipe: vLLM makes no configuration of it on this machine{_under(pasted)}: {said}"
        ) from error


def _parsed(words: list[str]) -> tuple[Any, list[str], list[str]]:
    """vLLM's namespace for `vllm serve`, the words that it does not know, and its options."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    left_over: list[str] = []

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        """Collects unknown words, and raises where vLLM would end the process."""

        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            found, left = super().parse_known_args(args, namespace)
            left_over.extend(left)
            return found, []

        def error(self, message: str) -> Any:
            raise ValueError(message)

    parser = Parser()
    serve = ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    known = parser.parse_args(["serve", *words])
    return known, left_over, list(serve._option_string_actions)


@contextmanager
def _logs_on_stderr() -> Iterator[None]:
    """Send what vLLM prints elsewhere than the answer."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
