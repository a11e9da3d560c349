"""Mechanisms that weigh, explore, time steps, and switch speculation off and on."""

from __future__ import annotations

from typing import Any

from adaptive_spec.exploration import Explorer
from adaptive_spec.modes import ModeMachine
from adaptive_spec.policies.planned import cost_probes, exploring
from adaptive_spec.policies.planned.cost_probes import CostProbes
from adaptive_spec.policies.planned.exploring import Exploring
from adaptive_spec.policies.planned.outlook import Outlook
from adaptive_spec.probe_test import ProbeTest
from adaptive_spec.values import FloatArray

from adaptive_spec import cost, exploration
from adaptive_spec.cost import CostModel
from benchmarks.ablation.acceptance_switches import (
    ALONE,
    CPU,
    LARGE,
    MIXED_AUC,
    MOE,
    OWN_GREEDY,
    POOR_GREEDY,
    USUAL,
    at,
)
from benchmarks.ablation.switch import Switch, answer, fixed, nothing

RAGGED, FIXED_DEPTH = "ragged 5 % slower", "fixed draft depth"
CONV, CODE = "Azure conv, 1.3 x saturation", "Azure code, 1.3 x saturation"
DEAR = "h100-dear-first-draft"
TARGETS = tuple(
    (acceptance, load)
    for acceptance in ("gsm8k", "mixed")
    for load in (
        "16 of 64 clients in a hurry",
        "48 of 64 clients in a hurry",
        "64 clients with a target",
        "64 of 256 clients in a hurry",
    )
)
_features, _ran = CostModel._features, ModeMachine.ran


def _without_jump(self: CostModel, *arguments: Any, **named: Any) -> FloatArray:
    found = _features(self, *arguments, **named)
    found[self._any_draft] = found[self._any_draft_request] = 0.0
    return found


def _no_credit(self: ModeMachine, **named: float) -> None:
    _ran(self, **named)
    self._credit = min(self._credit, 0.0)


COLD_STARTS = (
    ("gsm8k", "first steps, 1 client"),
    ("gsm8k", "first steps, 64 clients"),
    ("own-poor", "first steps, 256 clients"),
    ("steady-5", "first steps, 64 clients"),
)
PROMPTS = (
    ("gsm8k", CODE),
    ("gsm8k", "Azure code, .5 of saturation"),
    ("gsm8k", CONV),
    ("steady-5", CODE),
    ("gsm8k", "Mooncake, .5 of saturation"),
)

SWITCHES = (
    Switch(
        "token worth",
        "stretches that accept well must not take what others need",
        (*at("passages", 64, 256), *at("changing", 64), *at("mixed", 64), *at("own-good", 256)),
        options={"token_worth": False},
    ),
    Switch(
        "TPOT weights",
        "requests behind their target",
        TARGETS,
        options={"latency_strength": 0.0},
        targets=True,
        spread=False,
    ),
    Switch(
        "TPOT weights four times as strong",
        "the same with `latency_strength=4` (1 by default)",
        TARGETS,
        options={"latency_strength": 4.0},
        added=True,
        targets=True,
        spread=False,
    ),
    Switch(
        "TPOT cap",
        "every request within its target where some plan does that (off by default)",
        TARGETS,
        options={"tpot_constraint": True},
        added=True,
        targets=True,
        spread=False,
    ),
    Switch(
        "graph choice",
        "ragged batches that run a slower graph, and padding",
        (
            ("gsm8k", "closed:16", LARGE, RAGGED),
            ("own-good", "closed:16", LARGE, RAGGED),
            ("own-good", "closed:64", LARGE, RAGGED),
            ("own-good", "closed:256", LARGE, RAGGED),
            ("gsm8k", "closed:16", MOE),
        ),
        options={"graph_choice": False},
    ),
    Switch(
        "drafts in padding",
        "padding of captured sizes is free to explore with",
        (("gsm8k", "closed:1", MOE), ("gsm8k", "closed:16", MOE), ("gsm8k", "closed:16", LARGE)),
        ((Explorer, "fill_padding", lambda _self, verify, _available: verify),),
    ),
    Switch(
        "exploration, all of it",
        "cost probes and deeper drafts",
        (*at("gsm8k", 1, 64), *at("own-good", 64), ("rises", "16 clients, 60 s"), *COLD_STARTS),
        options={"explore": False},
    ),
    Switch(
        "one draft deeper",
        "a K that has shrunk, and stays there",
        (*at("gsm8k", 1, 64), ("rises", "16 clients, 60 s"), *at("changing", 64), *COLD_STARTS[:2]),
        ((Explorer, "due", answer(False)), (Exploring, "extend_while_drafting", nothing)),
    ),
    Switch(
        "deeper only if it may pay",
        "one client on a machine that pads",
        (("gsm8k", "closed:1", MOE), ("gsm8k", "closed:1", LARGE), *at("gsm8k-ngram", 1)),
        ((Outlook, "deeper_may_pay", answer(True)),),
    ),
    Switch(
        "half explore where nobody speculates",
        "a first draft that is dear for the whole batch",
        (
            *at("steady-5", 64),
            *at("own-poor", 256),
            *at("gsm8k-ngram", 256),
            ("own-poor", "closed:64", DEAR),
        ),
        (
            (exploring, "FRACTION_OF_NONE", exploration.FRACTION),
            (exploration, "FRACTION_OF_NONE", exploration.FRACTION),
        ),
    ),
    Switch(
        "cost probes, all of them",
        "a cost model that has seen one K only",
        (*COLD_STARTS, *at("gsm8k", 256), ("gsm8k", "4, 128, 4 clients")),
        (
            (CostProbes, "to_draft", answer(None)),
            (CostProbes, "leaves_drafting_out", answer(False)),
        ),
    ),
    Switch(
        "probes beside the best K",
        "large batches, where K next to the best one was never timed",
        (
            *at("gsm8k", 256),
            *at("own-poor", 256),
            ("gsm8k", "Azure conv, saturation"),
            ("gsm8k", CONV),
        ),
        ((CostProbes, "_beside", answer(None)),),
    ),
    Switch(
        "hopeless K are not timed",
        "poor drafters from a cold start, loads that change all the time",
        (
            *COLD_STARTS[2:],
            ("steady-5", "closed:16", MOE),
            ("gsm8k", "Azure conv, .8 of saturation"),
        ),
        ((Outlook, "hopeless", answer(False)),),
    ),
    Switch(
        "few drafts timed",
        "a jump at the first draft told from the slope",
        (
            *at("steady-5", 64),
            *at("own-poor", 256),
            *at("gsm8k-ngram", 64),
            ("own-poor", "closed:64", DEAR),
        ),
        ((cost_probes, "_SHARE", 1),),
    ),
    Switch(
        "steps without drafting",
        "fixed depth: what the passes cost shows only without them",
        (
            ("steady-5", "closed:1", USUAL, FIXED_DEPTH),
            ("steady-5", "closed:64", USUAL, FIXED_DEPTH),
            ("gsm8k", "closed:64", USUAL, FIXED_DEPTH),
        ),
        ((CostProbes, "leaves_drafting_out", answer(False)),),
    ),
    Switch(
        "falling V",
        "kernels chosen by the number of tokens: four are faster than three",
        (
            (POOR_GREEDY, "1 client, 5,000 tokens", CPU),
            (OWN_GREEDY, "1 client, 5,000 tokens", CPU),
            ("own-poor-t0", "1 client, 5,000 tokens", CPU),
            ("own-poor-t0", "1 client, 5,000 tokens", CPU, "step times vary by 3 %"),
        ),
        ((cost, "_MOST_FALL", 0.0),),
    ),
    Switch(
        "jump at the first draft",
        "rejection sampling and slower paths for the whole batch",
        (
            ("own-poor", "closed:16", DEAR),
            ("own-poor", "closed:64", DEAR),
            ("mixed", "closed:64", DEAR),
        ),
        ((CostModel, "_features", _without_jump),),
    ),
    Switch(
        "prompt slope",
        "steps full of prompts, where no draft was ever timed",
        PROMPTS,
        ((CostModel, "_compare_with_prompts", nothing),),
    ),
    Switch(
        "prompts count for less",
        "the time of prompts is not linear",
        PROMPTS,
        ((cost, "_PROMPT_ERROR", 0.0),),
    ),
    Switch(
        "mode machine",
        "drafters of no use",
        (
            *at("steady-5", 1, 64, 256),
            ("falls", "64 clients, 60 s"),
            ("steady-5", "closed:64", USUAL, FIXED_DEPTH),
        ),
        ((ModeMachine, "_consider_stopping", nothing),),
    ),
    Switch(
        "probe law",
        "dead drafters that revive, and those that never do",
        (
            ("dies and revives", "64 clients, 120 s"),
            ("rises", "16 clients, 60 s"),
            ("rises", "64 clients, 60 s"),
            *at("steady-5", 16, 64),
        ),
        options={"probe_law": False},
    ),
    Switch(
        "probe when the load has changed",
        "OFF at one load, worth while at another",
        (
            ("gsm8k", "4, 128, 4 clients"),
            ("own-poor", "4, 128, 4 clients"),
            ("poor", "4, 128, 4 clients"),
            ("steady-5", "Azure conv, .5 of saturation"),
        ),
        ((ModeMachine, "_watch", nothing),),
    ),
    Switch(
        "rates pooled over probes",
        "drafters near break-even",
        (*at("own-poor", 256), *at("poor", 64, 256), ("rises", "64 clients, 60 s")),
        ((ProbeTest, "_pays_in_the_long_run", answer(False)),),
    ),
    Switch(
        "advantage in probes",
        "requests that differ: some pay, the mean does not",
        (*at("own-poor", 64, 256), *at("passages", 256), *at("good and poor by label", 256)),
        ((ModeMachine, "_advantage", fixed(0.0)),),
    ),
    Switch(
        "credit",
        "a few bad requests at the same time are no reason to stop",
        (
            *ALONE,
            *at("passages", 64, 256),
            *at("own-good", 256),
            *at("own-poor", 64, 256),
            *at("poor", 256),
        ),
        ((ModeMachine, "ran", _no_credit),),
    ),
    Switch(
        "trial",
        "a drafter that has not paid yet is stopped sooner",
        (
            *ALONE,
            *at("steady-5", 1, 64),
            ("steady-5", "first steps, 64 clients"),
            ("steady-5", "first steps, 256 clients"),
            ("steady-5", "closed:16", MOE),
            ("falls", "64 clients, 60 s"),
        ),
        ((ModeMachine, "_on_trial", fixed(False)),),
    ),
)
MIXED = (
    *at("mixed", 1, 64),
    *at("gsm8k", 256),
    *at(MIXED_AUC, 16),
    ("gsm8k", "Azure conv, .8 of saturation"),
)
