"""The configuration tree and its sources.

The configuration is one JSON object, given as ``--additional-config '{"adaptive_spec": {...}}'``
(vLLM) or as a YAML or JSON file named by ``ADAPTIVE_SPEC_CONFIG``. Without either, the plugin stays
inactive.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from adaptive_spec.bounded_read import check_plain, decode_document, read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.validation import explained

ENVIRONMENT_VARIABLE = "ADAPTIVE_SPEC_CONFIG"
KEY = "adaptive_spec"
"""Our key in vLLM's ``--additional-config``."""
_LARGEST_BYTES = 1 << 20
_KMAX = "k", "k_max", "kmax", "max_draft_tokens", "max_k", "num_speculative_tokens"
"""Keys under which people look for the largest K."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FailOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits after which a failing policy is benched."""

    max_decision_ms: Annotated[float, msgspec.Meta(gt=0)] = 20.0
    """CPU time of the longest decision that is used (ms); a slower one counts as a failure, and so
    does one that takes ten times as long by the clock."""
    failures_to_bench: Annotated[int, msgspec.Meta(ge=1)] = 5
    """Failures, without 100 good decisions in between, after which the policy is benched."""
    bench_seconds: Seconds = 60.0
    """Time that the engine's own K runs before the policy is tried again (seconds)."""


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Destination of the step records; without a directory nothing is recorded."""

    directory: str | None = None
    segment_mb: Annotated[float, msgspec.Meta(gt=0)] = 64.0
    """Size at which a new segment begins (MB)."""
    max_segments: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Segments kept in the directory; the oldest that no process writes is deleted first."""
    hash_ids: bool = False
    """Write digests in place of request ids, which hold those that clients give their requests."""


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Measured gain: in a small random part of the steps another arm runs, in blocks."""

    share: Annotated[float, msgspec.Meta(ge=0, le=0.25)] = 0.01
    """Share of the steps in blocks; 0 measures nothing. It costs this share of the gain: at 0.01,
    0.1 % of the throughput where the plugin gains 10 %."""
    arms: tuple[Literal["engine", "none"], ...] = ("engine",)
    """Arms of the blocks: ``engine``, the engine's own K or table; ``none``, no drafts, with the
    pass that keeps the drafter in step."""
    guard: bool = True
    """Hand back to the engine's own K where the plugin is measurably slower, by more than 1 %."""


class SecondSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Drafts that are looked up in earlier text, beside those of the drafter."""

    kind: Literal["suffix"] = "suffix"
    """``suffix``: Arctic Inference's suffix trees, over the request's prompt and output."""
    other_requests: bool = False
    """Look them up in the outputs of other requests, too. Outputs stay the same; how fast they come
    tells who asks what others were told."""
    remembered_requests: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Outputs of others that are kept, ended ones included; the oldest goes first."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of an operator.

    Attributes:
        mode: ``on`` applies decisions, ``shadow`` only records them, ``off`` leaves the engine
            alone.
        policy: name of an installed policy, or ``module:Class``.
        options: options of the policy.
        seed: seed of the policy's randomness (exploration).
        shadow_share: share of the steps in mode ``shadow`` that run another K than the engine's, in
            blocks of 16 steps, so that a shadow trace shows what other K cost (`adaptive-spec
            advise`). 0.02 costs at most 2 % of the gain or loss between K.
        profile: JSON file with a cost profile of this model on this hardware; optional.
        memory_guard: shrink K before the KV pool runs out.
        confidence: read the drafter's confidence where the engine exposes it (vLLM; SGLang has its
            own switch).
        status_file: JSON file with counters and the last decision, rewritten about once a second;
            ``{pid}`` in the name becomes the process id.
        control_file: JSON file that switches mode, policy and options while the server runs
            (`adaptive_spec.operation.run_time_switch`); vLLM and SGLang.
        state_directory: folder that keeps the learned state for the next start of a server with the
            same model, drafter, hardware and versions; without a folder, every start learns from
            scratch.
        state: folder or fsspec URL (``s3://bucket/folder``) that replicas share: each writes what
            it has learned, and a new one starts from what those of the same model and drafter have
            written. In place of `state_directory`.
        varlen_graphs: capture decode graphs in which each request has its own K, where vLLM and its
            attention backends can; false: one K per batch wherever full graphs are captured.
        allow_untested: run on a version of the engine that is outside of the tested range
            (page "Will it work here?") if its source has what the adapter needs; without it, the
            server refuses to start.
        take_over: switch off vLLM's `enable_adaptive_verification`, which leaves the plugin in
            shadow mode, and steer instead of it.
        second_source: look drafts up in earlier text, too, and let the policy choose for each
            request and step; None: the drafter's alone. vLLM; policy `goodput`.
        hints: hints of requests that are honoured: ``off``, ``k_cap``, ``task``, ``tpot_ms``. The
            default leaves out ``tpot_ms``, which takes time from other requests (up to
            ``options.tpot_allowance``). vLLM and SGLang.
        audit: measured gain over the engine's own K, and the guard that hands back to it.
        trace: step records.
        fail_open: limits after which a failing policy is benched.
    """

    mode: Literal["off", "shadow", "on"] = "on"
    policy: str = "goodput"
    options: dict[str, Any] = {}
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    shadow_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    profile: str | None = None
    memory_guard: bool = True
    confidence: bool = True
    status_file: str | None = None
    control_file: str | None = None
    state_directory: str | None = None
    state: str | None = None
    varlen_graphs: bool = True
    allow_untested: bool = True
    take_over: bool = False
    second_source: SecondSource | None = None
    hints: tuple[Literal["off", "k_cap", "task", "tpot_ms"], ...] = ("off", "k_cap", "task")
    audit: Audit = Audit()
    trace: Trace = Trace()
    fail_open: FailOpen = FailOpen()


def parse_config(value: object, *, source: str) -> Config:
    """Validate a configuration object.

    Args:
        value: the decoded JSON or YAML object; also the object around it that
            ``--additional-config`` takes, with the one key ``adaptive_spec``.
        source: origin of the object, for the error message.

    Raises ConfigError: one line with the offending key and the known keys.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(
            f'{source}: expected an object such as {{"mode": "on"}}, got {type(value).__name__}'
        )
    value = dict(value)
    if value.keys() == {KEY}:  # as in --additional-config
        return parse_config(value[KEY], source=f"{source}: `{KEY}`")
    if KEY in value:
        others = ", ".join(sorted(value.keys() - {KEY}))
        raise ConfigError(f"{source}: `{KEY}` holds the whole configuration; move {others} into it")
    # YAML parses a bare `on` or `off` as true or false.
    if isinstance(value.get("mode"), bool):
        value["mode"] = "on" if value["mode"] else "off"
    if value.get("policy") is False:
        value["policy"] = "off"
    try:
        check_plain(value)
        config = msgspec.convert(value, Config)
    except msgspec.ValidationError as error:
        said = explained(error, Config)
        if near := [key for key in value if _is_near(key, KEY)]:
            said = f"{near[0]!r} is no key; did you mean `{KEY}`?"
        if "kernel" in value and "`kernel`" in said.partition(";")[0]:
            said = "`kernel` was removed in 0.2: decisions are always compiled; drop it"
        if any(f"`{name}`" in said.partition(";")[0] for name in _KMAX):
            said = f"Kmax is the engine's own num_speculative_tokens; {said}"
        raise ConfigError(f"{source}: {said}") from error
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error
    if config.state and config.state_directory:
        raise ConfigError(f"{source}: `state` is in place of `state_directory`; drop one of them")
    path = config.profile
    if path is not None and not Path(path).is_file():
        raise ConfigError(
            f"{source}: `profile`: no file {path!r}; give an existing file or drop it"
        )
    return config


def mistaken_names(given: object, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return a sentence for each key and variable that was meant for the plugin and is not read.

    Args:
        given: value of ``--additional-config``, which other plugins of vLLM read, too.
        environ: environment variables.
    """
    keys = list(map(str, given)) if isinstance(given, Mapping) else []
    found = [
        f'nothing reads the key {key!r} of --additional-config; write "{KEY}"'
        for key in keys
        if key != KEY and _is_near(key, KEY)
    ]
    found += [
        f'the key {key!r} of --additional-config stands outside of {{"{KEY}": {{...}}}}'
        for key in ("mode", "policy")
        if key in keys
    ]
    return found + [
        f"nothing reads the variable {name}; write {ENVIRONMENT_VARIABLE}=FILE"
        for name in environ
        if ENVIRONMENT_VARIABLE not in environ and _is_near(name, ENVIRONMENT_VARIABLE)
    ]


def _is_near(name: str, ours: str) -> bool:
    name, ours = (re.sub("[^a-z]", "", each.lower()) for each in (name, ours))
    return difflib.SequenceMatcher(None, name, ours).ratio() > 0.76


def load_config_file(path: str | os.PathLike[str]) -> Config:
    """Read a YAML or JSON configuration file.

    Raises ConfigError if the file is missing, unreadable, malformed or invalid.
    """
    file = Path(path)
    try:
        value = decode_document(file, read_small_file(file, _LARGEST_BYTES))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"configuration file {str(file)!r}: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not valid {file.suffix or 'YAML'}: {error}") from error
    return parse_config(value, source=str(file))


def config_from_environment(environ: Mapping[str, str] = os.environ) -> Config | None:
    """Load the configuration named by ``ADAPTIVE_SPEC_CONFIG``; return None without the variable.

    Raises ConfigError, beginning with the variable's name, if the file cannot be used.
    """
    path = environ.get(ENVIRONMENT_VARIABLE, "")
    if not path:
        return None
    try:
        return load_config_file(path)
    except ConfigError as error:
        raise ConfigError(f"{ENVIRONMENT_VARIABLE}: {error}") from error
