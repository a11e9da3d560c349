"""Mechanisms that predict acceptance, and those that use the drafter's confidence."""

from __future__ import annotations

from typing import Any

import numpy as np
from adaptive_spec.earlier_confidence import EarlierConfidence
from adaptive_spec.hazard_model import HazardModel
from adaptive_spec.policies.goodput.live import LiveAdmission
from adaptive_spec.policies.goodput.option_value import OptionValue
from adaptive_spec.policies.planned.outlook import Outlook
from adaptive_spec.prediction_gain import PredictionGain
from adaptive_spec.request_effects import EffectAverage, RequestEffects
from adaptive_spec.sampling_classes import ClassOffsets, SamplingClasses
from adaptive_spec.values import FloatArray, IntArray

from adaptive_spec.policies.goodput import policy as goodput_policy
from benchmarks.ablation.switch import Row, Switch, answer, nothing

MOE, LARGE, CPU = "h100-qwen3-30b-a3b", "h100-llama-70b-tp4", "vllm-cpu"
USUAL = "h100-llama-8b"
OWN, OWN_POOR = "own-good, confidence", "own-poor, confidence"
OWN_GREEDY, POOR_GREEDY = "own-good-t0, confidence", "own-poor-t0, confidence"
MIXED_AUC, CODE_AUC = "mixed, AUC .85", "instructcoder, AUC .85"
BOTH, BOTH_POOR = (
    "good, greedy and sampled, confidence",
    "poor, greedy and sampled, confidence",
)


def at(acceptance: str, *clients: int) -> tuple[Row, ...]:
    """Closed loops of so many clients."""
    return tuple((acceptance, f"closed:{each}") for each in clients)


_effects_init = RequestEffects.__init__
_live_reached = LiveAdmission.reached


def _quick_leads(self: RequestEffects, *arguments: Any) -> None:
    _effects_init(self, *arguments)
    self.leading = self.quick


def _only_clears(self: EffectAverage, slots: IntArray) -> None:
    slots = slots[slots < len(self.effect)]
    self.effect[slots] = 0.0
    self.information[slots] = 0.0


def _one_price(self: Outlook) -> FloatArray:
    return np.full(len(self.survival), self.verify_price())


def _no_gain(self: LiveAdmission, *arguments: Any) -> None:
    _live_reached(self, *arguments)
    self._gain = 1.0


CONFIDENT = (*at(OWN_GREEDY, 1, 64), *at(MIXED_AUC, 1, 64, 256), *at(OWN_POOR, 64))
TO_THE_END = tuple(
    (*row, USUAL, "drafted to the end")
    for row in (*at(MIXED_AUC, 1, 64, 256), *at(OWN_GREEDY, 64), *at(CODE_AUC, 16))
)

ALONE = (*at("own-poor", 1), *at(OWN, 1), *at(OWN_POOR, 1), ("rises", "16 clients, 60 s"))
"""Requests that differ and come one after the other; found by leaving out several at a time."""

SWITCHES = (
    Switch(
        "request effects",
        "requests told apart by their own acceptance",
        (*at("mixed", 1, 64, 256), *at("passages", 64), *at("own-good", 64)),
        options={"request_effects": False},
    ),
    Switch(
        "quick average",
        "requests that change within some ten tokens",
        (*at("passages", 1, 64, 256), *at("changing", 1, 64)),
        ((RequestEffects, "_score", nothing),),
    ),
    Switch(
        "slow average",
        "requests that differ for good",
        (
            *at("mixed", 1, 64),
            *at("own-good", 64),
            *at("specbench-eagle", 64),
            *at("gsm8k-ngram", 64),
            *ALONE,
            *at("own-poor", 64),
            *at("good and poor by label", 64),
            *at(OWN_GREEDY, 64),
            *at(MIXED_AUC, 64),
        ),
        ((RequestEffects, "_score", nothing), (RequestEffects, "__init__", _quick_leads)),
    ),
    Switch(
        "learned variance of requests",
        "how much requests differ, from those that have ended",
        (*at("mixed", 64, 256), *at("own-good", 64), *at("passages", 64)),
        ((EffectAverage, "forget", _only_clears),),
    ),
    Switch(
        "change detection",
        "acceptance changes for all requests at once",
        (
            ("falls", "16 clients, 60 s"),
            ("falls", "64 clients, 60 s"),
            ("rises", "16 clients, 60 s"),
            ("rises", "64 clients, 60 s"),
            ("dies and revives", "64 clients, 120 s"),
            ("two tenants", "good tenant leaves, poor one comes"),
        ),
        options={"change_detection": False},
    ),
    Switch(
        "task labels",
        "requests of tasks that accept differently, from their first step on",
        (
            *at("good and poor by label", 16, 64, 256),
            *at("mixed", 64),
            *at("own-good", 64),
            *at("specbench-eagle", 64),
        ),
        (
            (HazardModel, "_learn_tasks", nothing),
            (EarlierConfidence, "_learn_tasks", nothing),
        ),
    ),
    Switch(
        "sampling classes",
        "greedy and sampled requests in one server",
        (*at(BOTH, 1, 16, 64), *at(BOTH_POOR, 16), *at("good, greedy and sampled", 64)),
        ((SamplingClasses, "see", nothing),),
        spread=False,
    ),
    Switch(
        "offset of sampling classes",
        "the part of sampling classes that history uses",
        (*at(BOTH, 16), *at("good, greedy and sampled", 16, 64)),
        ((ClassOffsets, "learn", nothing),),
        spread=False,
    ),
    Switch(
        "earlier confidence",
        "requests whose drafts were unsure before",
        (
            *at(OWN, 1, 64),
            *at(OWN_GREEDY, 64),
            *at(OWN_POOR, 64),
            *at(MIXED_AUC, 64),
            *TO_THE_END[1:4],
        ),
        ((EarlierConfidence, "learn", nothing),),
    ),
    Switch(
        "confidence, all of it",
        "drafters that say how sure they are",
        CONFIDENT,
        options={"confidence": False},
    ),
    Switch(
        "confidence admission",
        "the same, but earlier confidence stays",
        CONFIDENT,
        ((PredictionGain, "proven", property(answer(False))),),
    ),
    Switch(
        "model selection",
        "confidence that tells nothing more than history does",
        (
            *at(OWN, 1, 16, 64, 256),
            *at(BOTH, 64),
            *at("mixed, AUC .5", 1, 64, 256),
            *at("own-noised, confidence", 64),
            *at(OWN_POOR, 1),
        ),
        ((PredictionGain, "proven", property(lambda self: self._count > 0.0)),),
    ),
    Switch(
        "imputation",
        "history of requests whose drafts are left out by confidence",
        CONFIDENT,
        ((HazardModel, "impute", nothing),),
    ),
    Switch(
        "option value",
        "depth, where poor drafts can be left out later",
        (*CONFIDENT, *TO_THE_END),
        ((LiveAdmission, "option_value", answer(None)), (OptionValue, "learn", nothing)),
    ),
    Switch(
        "prices from reached goodput",
        "what confidence brings beyond the plan makes drafts dearer",
        CONFIDENT,
        ((LiveAdmission, "reached", _no_gain),),
    ),
    Switch(
        "prices by position",
        "one client, where the seventh token costs four times the sixth",
        (
            (OWN_GREEDY, "1 client, 5,000 tokens", CPU),
            (MIXED_AUC, "1 client, 5,000 tokens", CPU),
            (MIXED_AUC, "closed:1", MOE),
            (OWN_GREEDY, "closed:1", LARGE),
        ),
        ((Outlook, "verify_prices", _one_price),),
    ),
    Switch(
        "looks at confidence where nothing is drafted",
        "drafters that history finds hopeless and confidence does not",
        (*at("poor, AUC .85", 64, 256), *at(OWN_POOR, 256), *at("changing, AUC .85", 64)),
        ((goodput_policy, "_LOOK_PERIOD", 10**12),),
    ),
)
