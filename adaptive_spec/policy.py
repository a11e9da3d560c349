"""Contract of a policy, and look-up by name.

A policy sees `StepContext` and `FinishedStep` and nothing of the engine. Third parties register a
policy under the entry-point group ``adaptive_spec.policies`` or name a dotted path,
``package.module:Class``.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import msgspec

from adaptive_spec.bounded_read import count_values
from adaptive_spec.config import Config
from adaptive_spec.errors import AdaptiveSpecError, PolicyError, described
from adaptive_spec.installed_parts import installed_parts
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    IntArray,
    Level,
    SpecPlan,
    StepContext,
)
from adaptive_spec.validation import explained, nearest

_LOG = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "adaptive_spec.policies"
MOST_OPTION_VALUES = 4096
"""Most values in a policy's options, those in lists included: policies loop over them."""
POLICY_ERRORS = (Exception, SystemExit)
"""Exceptions of a policy's code that must not end the engine."""
BASELINES_GROUP = "adaptive_spec.baselines"
"""Entry points of other systems' rules. A server never loads one by name."""

REMOVED = {
    "acceptance_adaptive_k": "sglang_ema",
    "adaedl": "vllm_adaptive_verification",
    "adaspec": "turbospec",
    "arctic_suffix": "static",
    "banditspec_exp3": "nightjar",
    "banditspec_ucb": "nightjar",
    "disco": "vllm_adaptive_verification",
    "dsde": "sglang_ema",
    "dspark": "vllm_adaptive_verification",
    "goodput2": "goodput",
    "hf_confidence": "vllm_adaptive_verification",
    "hf_heuristic": "sglang_ema",
    "linucb": "bandit, or goodput",
    "llama_p_min": "vllm_adaptive_verification",
    "lookup_rule": "goodput",
    "specdec_plus_plus": "vllm_adaptive_verification",
    "svip": "vllm_adaptive_verification",
    "tetris": "vllm_adaptive_verification",
    "thompson": "bandit, or goodput",
    "trtllm_request_gate": "sglang_ema",
    "trtllm_window_gate": "sglang_ema",
    "ucb": "bandit, or goodput",
    "vllm_dynamic": "turbospec",
}
"""Policies and baselines removed in 0.2, and the nearest that is left. For one release."""

GRANULARITY = {Level.UNIFORM: "L0", Level.VERIFY: "L1", Level.FULL: "L2"}
"""Abbreviations of the capability levels in tables."""

State: TypeAlias = dict[str, Any]
"""JSON-compatible state of a policy: numbers, strings, lists and dicts of them."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """State that another replica of the same model and drafter has learned.

    Attributes:
        name: of the replica's object, for messages.
        state: result of `Policy.state` there.
        doubt: variance by which its traffic may differ from what a new replica meets, as a share
            of the variance before anything was seen, besides what replicas show themselves.
        alike: device, versions and parallelism are the same, so that step times are, too.
    """

    name: str
    state: State
    doubt: float = 0.0
    alike: bool = True


def join_fleet(policy: Policy, peers: Sequence[Peer], capability: Capability) -> list[str]:
    """Let a new policy start from what other replicas have learned.

    A policy that can merge states declares a method of this name. Any other takes the first state
    of a replica alike that it can restore.

    Returns why each of those that are left out is not used.
    """
    method = getattr(policy, "join_fleet", None)
    if callable(method):
        refused: list[str] = method(peers, capability)
        return refused
    reasons = []
    for place, peer in enumerate(peers):
        if not peer.alike:
            reasons.append(f"{peer.name}: of another device or version")
            continue
        try:
            policy.restore(peer.state)
        except POLICY_ERRORS as error:
            reasons.append(f"{peer.name}: {error}")
            continue
        return reasons + [
            f"{other.name}: {policy.name} takes one state" for other in peers[place + 1 :]
        ]
    return reasons


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a policy's rule; an optional class attribute `provenance`.

    Attributes:
        source: paper and section, or upstream file; empty for our own rules.
        granularity: finest level the rule decides at: UNIFORM one K per batch, VERIFY K_i per
            request after a fixed draft, FULL draft depth as well.
        faults: known faults of the original, kept as they are; empty if none are known.
        greedy_drafts_only: the rule uses the probability of a sampled token or another live value
            that the contract forbids, so sampled drafts would change the output distribution.
    """

    source: str = ""
    granularity: Level = Level.FULL
    faults: str = ""
    greedy_drafts_only: bool = False


def provenance_of(policy: type[Policy] | Policy) -> Provenance:
    """Return a policy's provenance; the default one if the policy declares none.

    Options may change an instance's provenance.
    """
    found = getattr(policy, "provenance", None)
    return found if isinstance(found, Provenance) else Provenance()


def refuse_biased(policy: Policy, capability: Capability) -> None:
    """Raise PolicyError, one line, if the policy would change this engine's output distribution."""
    if capability.sampled_drafts and provenance_of(policy).greedy_drafts_only:
        raise PolicyError(
            f"policy {policy.name!r} is for greedy drafts only: with this engine's sampled drafts "
            "it would change the distribution of the output; let the engine draft greedily or "
            "choose another policy"
        )


def refuse_unrunnable(policy: Policy, capability: Capability) -> None:
    """Raise PolicyError, one line, if the engine cannot run the policy with its options.

    A policy that can tell declares a method ``check_engine(capability)``, which raises.
    """
    method = getattr(policy, "check_engine", None)
    if callable(method):
        method(capability)


def reads_entropy(policy: Any) -> bool:
    """Return whether the policy uses the drafts' entropy, which engines compute on demand.

    True unless the policy sets `reads_entropy = False`.
    """
    return getattr(policy, "reads_entropy", True) is not False


@runtime_checkable
class Policy(Protocol):
    """Decides K per request and per step.

    A policy class declares its options as a `msgspec.Struct` and is built as ``PolicyClass(options,
    seed=...)``. A policy may keep state by slot; the controller calls `forget` when slots are
    freed, and `forget` must reset them. The controller catches exceptions (fail-open).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type[msgspec.Struct]]

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide for one step. Called once per step, in step order."""
        ...

    def observe(self, step: FinishedStep) -> None:
        """Learn from a finished step.

        Steps arrive in step order, up to two steps late, or never. A policy need not remember steps
        in flight: `step.plan` is the plan that `plan` returned, with its `notes` and `memo`.
        """
        ...

    def forget(self, slots: IntArray) -> None:
        """Reset the state of these slots; their requests have ended."""
        ...

    def state(self) -> State:
        """Return the state worth keeping over a restart, as JSON-compatible values."""
        ...

    def restore(self, state: State) -> None:
        """Adopt a state saved by `state`. Raises PolicyError if the state does not fit."""
        ...


def available_policies(*, baselines: bool = False) -> dict[str, str]:
    """Return the names of the installed policies and their import paths.

    Args:
        baselines: include other systems' rules, which the simulator and benchmarks offer.
    """
    groups = (ENTRY_POINT_GROUP, BASELINES_GROUP) if baselines else (ENTRY_POINT_GROUP,)
    return dict(_policies_on(tuple(sys.path), groups))


@functools.cache
def _policies_on(path: tuple[str, ...], groups: tuple[str, ...]) -> dict[str, str]:
    """Read the installed packages' metadata, 10 ms and more, once for a `sys.path`."""
    found, clashes = installed_parts(*groups)
    for point, kept in clashes:
        _LOG.warning(
            "adaptive_spec: policy %r of %s is left out: %s has this name; rename it",
            point.name,
            point.value,
            kept,
        )
    return {name: point.value for name, point in found.items()}


def policy_class(name: str, *, baselines: bool = False) -> type[Policy]:
    """Find a policy class by entry-point name or dotted path ``package.module:Class``.

    Raises PolicyError with the list of known names if no policy has this name, or with another name
    if it was removed.
    """
    known = available_policies(baselines=baselines)
    target = known.get(name, name if ":" in name else "")
    if not target:
        if name in REMOVED:
            raise PolicyError(f"policy {name!r} was removed in 0.2: use {REMOVED[name]}")
        names = ", ".join(sorted(available_policies())) or "none installed"
        if name in available_policies(baselines=True):
            raise PolicyError(
                f"policy {name!r} is a baseline: it runs in the simulator, not in a server; "
                f"choose one of {names}"
            )
        meant = nearest(name, known)
        raise PolicyError(
            f"unknown policy {name!r}{meant}: choose one of {names}, or module:Class; "
            "`adaptive-spec policies` lists all"
        )
    module_name, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except POLICY_ERRORS as error:  # whatever the module of another package raises
        raise PolicyError(f"policy {name!r} cannot be imported from {target}: {error}") from error
    needed = ("plan", "observe", "forget", "state", "restore", "Options", "name", "summary")
    missing = [item for item in needed if not hasattr(found, item)]
    if missing:
        raise PolicyError(f"policy {name!r} lacks {', '.join(missing)}; see adaptive_spec.Policy")
    policy: type[Policy] = found
    return policy


def build_policy(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    baselines: bool = False,
) -> Policy:
    """Build a policy from its name and options.

    Args:
        name: an entry point, or ``package.module:Class``.
        options: the policy's options; missing ones take their defaults.
        seed: seed of the policy's own random numbers.
        baselines: `name` may be a baseline.

    Raises PolicyError naming the option that is unknown or of the wrong type.
    """
    cls = policy_class(name, baselines=baselines)
    if (count := count_values(options or {})) > MOST_OPTION_VALUES:
        raise PolicyError(
            f"policy {name!r}: {count} values in the options; {MOST_OPTION_VALUES} are the most"
        )
    try:
        converted = msgspec.convert(dict(options or {}), cls.Options)
    except msgspec.ValidationError as error:
        raise PolicyError(f"policy {name!r}: {explained(error, cls.Options)}") from error
    constructor: Any = cls
    try:
        policy: Policy = constructor(converted, seed=seed)
    except AdaptiveSpecError:
        raise
    except POLICY_ERRORS as error:
        raise PolicyError(
            f"policy {name!r} cannot be built as Class(options, seed=...): "
            f"{type(error).__name__}: {error}"
        ) from error
    return policy


def prepare(policy: Policy) -> None:
    """Let a policy compile its functions before its first decision.

    A class that has some declares a static method ``prepare()``. Raises PolicyError, one line, if
    it fails.
    """
    method = getattr(policy, "prepare", None)
    try:
        if callable(method):
            method()
    except AdaptiveSpecError:
        raise
    except POLICY_ERRORS as error:
        raise PolicyError(f"policy {policy.name!r}: prepare raised {described(error)}") from error


def reads_profile(policy: type[Policy] | Policy) -> bool:
    """Return whether the policy has an option `profile`."""
    return "profile" in policy.Options.__struct_fields__


def configured_policy(config: Config) -> Policy:
    """Build the policy that a configuration names, with its options and cost profile.

    A policy without an option `profile` ignores the configuration's profile.

    Raises PolicyError or ConfigError naming the fault.
    """
    options = dict(config.options)
    if config.profile is not None and reads_profile(policy_class(config.policy)):
        options.setdefault("profile", config.profile)
    return build_policy(config.policy, options, seed=config.seed)
