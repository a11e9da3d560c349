"""Answer of `adaptive-spec doctor --recipe`: what would be steered under a `vllm serve` command.

vLLM's own code parses the command and resolves the configuration, the model's included; names of
models decide nothing. Model runner, graphs and ranks are those that vLLM chooses on this machine.
"""

from __future__ import annotations

import os
import re
import shlex
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
from adaptive_spec.adapters.vllm.rules import Setup, wrong_output
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.config import Config
from adaptive_spec.engines.doctor_rows import RecipeReport
from adaptive_spec.errors import ConfigError, UnsupportedEngineError
from adaptive_spec.step import Level

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_SERVERS = ("serve", "vllm.entrypoints.openai.api_server")
_STEERED = {
    Level.FULL: "K per request, and draft depth",
    Level.VERIFY: "K per request; the draft depth stays Kmax",
    Level.UNIFORM: "one K per batch",
}


def judge(command: str) -> RecipeReport:
    """Return what the plugin would do under this command.

    Args:
        command: a shell command such as ``NAME=value vllm serve MODEL --flag value``, or its
            arguments alone; lines may end in a backslash.

    Raises ConfigError if vLLM cannot make a configuration of it, UnsupportedEngineError without
    vLLM.
    """
    try:
        import vllm
    except ImportError as error:
        raise UnsupportedEngineError(
            f"--recipe needs vLLM, which makes the configuration: {error}; install it here, or "
            "call doctor where the server runs"
        ) from None
    config = _configuration(command)
    setattr(config.scheduler_config, MISSING, SOURCE.require([BASE]).missing)
    found = detect(config, expected=True)
    tested = "tested" if VERSIONS.accepts(vllm.__version__) else f"tested are {VERSIONS.known}"
    device = config.device_config.device_type
    rows = [("engine", f"vLLM {vllm.__version__}, {tested}; on this machine ({device})")]
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
        if table_dropped(config, command):
            rows.append(("table of K", "vLLM drops it with data parallelism, and runs Kmax"))
        rows += [("K = 0 keeps", kept) for kept in kept_at_zero(config)]
        rows += [("note", note) for note in found.notes]
    return RecipeReport(steered=found.capability is not None and not found.shadow, rows=rows)


def table_dropped(vllm_config: Any, command: str) -> bool:
    """Return whether vLLM has taken the command's `num_speculative_tokens_per_batch_size` away."""
    name = "num_speculative_tokens_per_batch_size"
    kept = getattr(vllm_config.speculative_config, name, None)
    return name in command and kept is None


def kept_at_zero(vllm_config: Any) -> list[str]:
    """Return the costs of a configured drafter that stay at K = 0: vLLM cannot take them back."""
    speculation, model = vllm_config.speculative_config, vllm_config.model_config
    drops = getattr(speculation, "use_eagle_block_drop", speculation.use_eagle)
    # From 0.33 on a block's hash covers the token after it, which is why it was dropped.
    looks_ahead = getattr(vllm_config, "num_hash_lookahead_tokens", 0) > 0
    found = []
    if speculation.method not in WITHOUT_MODEL:
        found.append("the memory of the drafter")
    if vllm_config.cache_config.enable_prefix_caching and drops() and not looks_ahead:
        found.append("the last cached block of each prompt is computed anew")
    if model.is_hybrid or model.has_inner_state:
        found.append("1 + Kmax recurrent states in place of one, for each request")
    return found


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


def _own(vllm_config: Any) -> Config | None:
    """Our configuration, if the command has one."""
    # Where vLLM has loaded the plugin, the gate has taken it out of sight.
    gated: Config | None = getattr(vllm_config.scheduler_config, ATTRIBUTE, None)
    return gated or requested_config(vllm_config.additional_config)


def _configuration(command: str) -> Any:
    """Let vLLM parse the command and resolve its configuration."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words = _words(command)
    parser = FlexibleArgumentParser(exit_on_error=False)
    parser.add_argument("model_tag", nargs="?")
    try:
        # What belongs to the HTTP server alone is left over.
        known, _ = AsyncEngineArgs.add_cli_args(parser).parse_known_args(words)
        if known.model_tag is not None:
            known.model = known.model_tag
        return AsyncEngineArgs.from_cli_args(known).create_engine_config()
    except (SystemExit, Exception) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ConfigError(
            f"--recipe: vLLM makes no configuration of it on this machine: {reason}"
        ) from error


def _words(command: str) -> list[str]:
    """The command's arguments after the server's name; assignments go to the environment."""
    try:
        words = shlex.split(command.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"--recipe: {error}; paste the whole command") from None
    while words and _ASSIGNMENT.fullmatch(words[0]):
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    for server in _SERVERS:
        if server in words:
            return words[words.index(server) + 1 :]
    return words
