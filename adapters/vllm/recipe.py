"""Answer of `adaptive-spec doctor --recipe`: what would be steered under a `vllm serve` command.

vLLM's own code parses the command and resolves the configuration, the model's included; names of
models decide nothing. Model runner, graphs and ranks are those that vLLM chooses on this machine.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec

from adaptive_spec.adapters.vllm import KEY, varlen_graphs
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
from adaptive_spec.adapters.vllm.given_options import given_options
from adaptive_spec.adapters.vllm.known_recipes import known_recipe
from adaptive_spec.adapters.vllm.pasted_command import CONTROL, Pasted, read_pasted
from adaptive_spec.adapters.vllm.rules import Setup, wrong_output
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.config import ENVIRONMENT_VARIABLE, Config, mistaken_names
from adaptive_spec.engines.doctor_rows import RecipeReport, plugin_refusal
from adaptive_spec.errors import AdaptiveSpecError, ConfigError, UnsupportedEngineError
from adaptive_spec.policy import configured_policy
from adaptive_spec.step import Level

_ALIKE = 0.94
"""From which ratio on an unknown option is taken for a misspelt one."""
_ADVICE = "For further information visit"
"""Beginning of the line that pydantic adds to its reasons."""
_EXAMPLE = """--additional-config '{"adaptive_spec": {"mode": "on"}}'"""
_CODE = re.compile(
    "(_cls|_plugin|_module_path)$|^(logits_processors|middleware|model_class_overrides|trust_remote_code)$"
)
"""Names of options, and of fields within them, that name code."""
_RECURRENT_KINDS = "mamba", "mamba2", "linear_attention", "hybrid", "conv"
"""What layers with a recurrent state are called in models' configurations."""
_STEERED = {
    Level.FULL: "K per request, and draft depth",
    Level.VERIFY: "K per request; the draft depth stays Kmax",
    Level.UNIFORM: "one K per batch",
}
_ACTS = ("K per request", "one K")
"""Beginnings of `_STEERED`."""


class _Requested(NamedTuple):
    """Wishes of a command about the plugin.

    Attributes:
        config: our configuration; None without one.
        hindrance: why nothing will be steered, whatever the rest of the command is; else empty.
        rows: what to say about it.
    """

    config: Config | None
    hindrance: str
    rows: list[tuple[str, str]]


def judge(command: str, *, trust: bool = False) -> RecipeReport:
    """Return what the plugin will do under this command.

    vLLM is imported, which takes up to a minute, unless the text alone shows that nothing will be
    steered. Where vLLM is not installed, a table answers for the models of vLLM's own recipes.

    Args:
        command: what people paste (`pasted_command`), such as ``NAME=value vllm serve MODEL --flag
            value``, a compose file, or a server's arguments alone.
        trust: keep what names code: ``--trust-remote-code``, plugins, classes.

    Raises ConfigError if vLLM cannot make a configuration of it, UnsupportedEngineError without
    vLLM.
    """
    try:
        found = _judge(command, trust)
    except AdaptiveSpecError as error:
        raise type(error)(CONTROL.sub("?", str(error))) from error
    return RecipeReport(found.steered, [(key, CONTROL.sub("?", said)) for key, said in found.rows])


def _judge(command: str, trust: bool) -> RecipeReport:
    pasted = read_pasted(command)
    options = given_options(pasted.words)
    os.environ.update(pasted.environment)
    requested = _requested(options.get("additional-config"), pasted.environment, trust)
    rows = [
        ("environment", _said(pasted.environment)),
        ("not taken over", ", ".join(pasted.ignored)),
    ]
    rows = [*(row for row in rows if row[1]), *requested.rows]
    if requested.hindrance:
        steered = ("steered", f"nothing: {requested.hindrance}")
        rest = ("note", "vLLM was not imported: nothing else was judged")
        return RecipeReport(False, [steered, *rows, rest])
    if find_spec("vllm") is None:
        found = known_recipe(pasted.words, options)
        if not found:
            raise UnsupportedEngineError(
                "--recipe needs vLLM, which makes the configuration: install it here, or call "
                "doctor where the server runs"
            )
        report = _of_table(found, "vLLM is not installed here")
    else:
        print("importing vLLM, up to a minute", file=sys.stderr, flush=True)
        with _logs_on_stderr():
            report = _judged_by_vllm(pasted, options, requested.config, trust)
    return _will(report, requested.config, rows)


def _will(report: RecipeReport, config: Config | None, more: list[tuple[str, str]]) -> RecipeReport:
    """Say what will happen where the report says what could."""
    if config is None:
        but = "nothing: no configuration of the plugin; with " + _EXAMPLE
    elif config.mode == "shadow":
        but = "nothing: mode shadow only records decisions; with mode on"
    else:
        return RecipeReport(report.steered, [*report.rows, *more])
    rows = [(key, f"{but}: {said}" if key == "steered" else said) for key, said in report.rows]
    return RecipeReport(False, [*rows, *more])


def _requested(additional: object, environment: Mapping[str, str], trust: bool) -> _Requested:
    """Read our configuration. Raises ConfigError or PolicyError if it is none."""
    rows = [("note", sentence) for sentence in mistaken_names(additional, environment)]
    refusal = plugin_refusal("VLLM_PLUGINS", "vLLM", empty_allows_all=False)
    file = environment.get(ENVIRONMENT_VARIABLE, "")
    config: Config | None
    if (
        file
        and not os.path.lexists(file)
        and not (isinstance(additional, Mapping) and KEY in additional)
    ):
        rows.append(
            ("note", f"{ENVIRONMENT_VARIABLE}={file}: not on this machine, taken as mode on")
        )
        config = Config()
    else:
        config = requested_config(additional)
    if config is None:
        return _Requested(None, refusal or (rows[0][1] if rows else ""), rows[1:])
    if ":" in config.policy and not trust:
        rows.append(("dropped", f"policy {config.policy}, which is code; --trust keeps it"))
        config = msgspec.structs.replace(config, policy="goodput", options={})
    configured_policy(config)
    return _Requested(config, refusal or ("mode off" if config.mode == "off" else ""), rows)


def _of_table(rows: list[tuple[str, str]], note: str) -> RecipeReport:
    steered = any(said.rpartition(": ")[2].startswith(_ACTS) for _, said in rows)
    return RecipeReport(steered, [*rows, ("note", note)])


def _judged_by_vllm(
    pasted: Pasted, options: Mapping[str, Any], own: Config | None, trust: bool
) -> RecipeReport:
    try:
        import vllm
    except ImportError as error:
        raise UnsupportedEngineError(f"--recipe: vLLM cannot be imported: {error}") from None
    try:
        config, left_over, dropped = _configuration(pasted, own, trust=trust)
    except ConfigError as error:
        rows = known_recipe(pasted.words, options) if _is_unreachable(error.__cause__) else []
        if not rows:
            raise
        return _of_table(rows, str(error))
    setattr(config.scheduler_config, MISSING, SOURCE.require([BASE]).missing)
    found = detect(config, expected=True)
    tested = "tested" if VERSIONS.accepts(vllm.__version__) else f"tested are {VERSIONS.known}"
    device = config.device_config.device_type
    rows = [("engine", f"vLLM {vllm.__version__}, {tested}; on this machine ({device})")]
    if found.capability is not None and (wrong := wrong_output(Setup(config))):
        rows.append(("refused", f"vLLM's output is wrong with {wrong}; change the command"))
    scheduler = options.get("scheduler-cls")
    if scheduler:
        rows.append(
            ("refused", f"--scheduler-cls {scheduler}: the plugin brings its own; remove it")
        )
    rows.append(("steered", _steered(found)))
    if found.capability is not None:
        speculation = f"{found.method}, Kmax {found.capability.max_draft_tokens}"
        rows.append(("speculation", f"{speculation}, model runner {found.runner}"))
        rows.append(("full graphs", full_graphs(config)))
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
    if dropped:
        rows.append(("dropped", f"{', '.join(dropped)}: names code; --trust keeps it"))
    if left_over:
        rows.append(("left out", f"{' '.join(left_over)}: no option of this vLLM"))
    acts = found.capability is not None and not found.shadow and not scheduler
    return RecipeReport(steered=acts, rows=rows)


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
    """Return whether batches whose K differ are expected to run in full CUDA graphs."""
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
    return " ".join(f"{name}={value}" for name, value in environment.items())


def _under(pasted: Pasted) -> str:
    return f", with {_said(pasted.environment)}" if pasted.environment else ""


def _is_unreachable(error: BaseException | None) -> bool:
    """Return whether Hugging Face's libraries could not reach the model's configuration."""
    text = str(error)
    return isinstance(error, OSError) or "huggingface.co" in text or "snapshot" in text


def _configuration(
    pasted: Pasted, own: Config | None = None, *, trust: bool = False
) -> tuple[Any, list[str], list[str]]:
    """Let vLLM parse the words and resolve its configuration.

    Returns it, the options that this vLLM does not know, and those that were dropped.

    Raises ConfigError, one line, with vLLM's own reason.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    dropped: list[str] = []
    try:
        known, left_over, serve = _parsed(pasted.words)
        names = list(serve._option_string_actions)
        for word in left_over:
            name = word.partition("=")[0].partition(".")[0].replace("_", "-")
            if near := difflib.get_close_matches(name, names, 1, _ALIKE):
                raise ConfigError(f"--recipe: {name} is no option of vLLM; did you mean {near[0]}?")
        if known.model_tag is not None:
            known.model = known.model_tag
        dropped = [] if trust else _without_code(known, serve)
        # The plugin brings its own; the report says that the server refuses another.
        known.scheduler_cls = None
        if own is not None:
            os.environ.pop(ENVIRONMENT_VARIABLE, None)
            known.additional_config[KEY] = msgspec.to_builtins(own)
        return AsyncEngineArgs.from_cli_args(known).create_engine_config(), left_over, dropped
    except AdaptiveSpecError:
        raise
    except (SystemExit, Exception) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        said = "; ".join(line for line in lines if line and not line.startswith(_ADVICE))
        said += f"; dropped, as it names code: {', '.join(dropped)} (--trust)" if dropped else ""
        raise ConfigError(
            f"--recipe: vLLM makes no configuration of it on this machine{_under(pasted)}: {said}"
        ) from error


def _without_code(known: Any, serve: Any) -> list[str]:
    """Reset options that name code to be imported; return their names."""
    dropped = []
    for name, value in list(vars(known).items()):
        option = f"--{name.replace('_', '-')}"
        default = serve.get_default(name)
        if _CODE.search(name):
            if value and value != default:
                setattr(known, name, default)
                dropped.append(option)
        elif name != "additional_config":
            dropped += [f"{field} of {option}" for field in _drop_within(value)]
    backend = known.distributed_executor_backend
    if isinstance(backend, str) and "." in backend:
        known.distributed_executor_backend = None
        dropped.append("--distributed-executor-backend")
    return sorted(dropped)


def _drop_within(value: Any) -> list[str]:
    """The same for an option that is an object, at any depth."""
    if isinstance(value, list | tuple):
        return [field for each in value for field in _drop_within(each)]
    dropped = []
    config = dataclasses.is_dataclass(value) and not isinstance(value, type)
    fields = value if isinstance(value, dict) else vars(value) if config else {}
    for field, each in list(fields.items()):
        default = None if isinstance(value, dict) else getattr(type(value), field, None)
        if not _CODE.search(str(field)):
            dropped += _drop_within(each)
        elif each and each != default:
            fields[field] = default
            dropped.append(str(field))
    return dropped


def _parsed(words: list[str]) -> tuple[Any, list[str], Any]:
    """vLLM's namespace for `vllm serve`, the words that it does not know, and its parser."""
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
    return known, left_over, serve


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
