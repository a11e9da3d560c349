"""Hazard models that come with the package, by name: ``model:NAME`` wherever a file is asked for.

Except `constant` none is independent from step to step. All but the last three are round
figures of our own; those follow measurements, named in their `source`.
"""

from __future__ import annotations

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.hazard import (
    HazardModel,
    RegimeChange,
    constant_model,
)

PREFIX = "model:"
_CONSTANT = "constant"
_LENGTHS = (48, 96, 144, 192, 256, 320, 416, 576, 832, 1280)


def _two_states(stay: float) -> tuple[tuple[float, float], tuple[float, float]]:
    leave = round(1 - stay, 6)
    return ((stay, leave), (leave, stay))


def _steady(name: str, percent: int, logit: float, apart: float = 0.5) -> HazardModel:
    """Hazards that vary a little around one value; all of them share text and requests."""
    return HazardModel(
        name=name,
        source=f"round figures: hazards about {percent} %, the same at every draft position",
        position_logits=(0.0,),
        state_logits=(logit - apart, logit + apart),
        transitions=_two_states(0.95),
        request_deviation=0.2,
        output_tokens=_LENGTHS,
    )


_MODELS = (
    HazardModel(
        name="good",
        source="round figures: 2.9 of 8 drafts accepted per step, first hazard .79",
        position_logits=(0.0, -0.1, -0.2),
        state_logits=(0.7, 2.6),
        transitions=_two_states(0.93),
        request_deviation=0.4,
        output_tokens=_LENGTHS,
    ),
    HazardModel(
        name="poor",
        source="round figures: .6 of 8 drafts accepted per step, first hazard .37",
        position_logits=(0.0, -0.1, -0.2),
        state_logits=(-1.4, 0.2),
        transitions=_two_states(0.93),
        request_deviation=0.4,
        output_tokens=_LENGTHS,
    ),
    HazardModel(
        name="dead",
        source="round figures: 3 % of first drafts accepted, as of a drafter of another model",
        position_logits=(0.0,),
        state_logits=(-5.0, -3.0),
        transitions=_two_states(0.95),
        request_deviation=0.3,
        output_tokens=_LENGTHS,
    ),
    HazardModel(
        name="mixed",
        source="round figures: easy and hard passages of about 25 tokens, requests that differ",
        position_logits=(0.0,),
        state_logits=(-2.5, 3.0),
        transitions=_two_states(0.96),
        request_deviation=1.0,
        output_tokens=_LENGTHS,
    ),
    HazardModel(
        name="regime-change",
        source="round figures: hazards about .8, from output position 256 of a request about .1",
        position_logits=(0.0,),
        state_logits=(1.0, 2.0),
        transitions=_two_states(0.95),
        request_deviation=0.2,
        changes=(RegimeChange(logit=-3.8, from_position=256),),
        output_tokens=(512,),
    ),
    HazardModel(
        name="drafter-dies",
        source="round figures: hazards about .8, from record 200 of 400 on about .1",
        position_logits=(0.0,),
        state_logits=(1.0, 2.0),
        transitions=_two_states(0.95),
        request_deviation=0.2,
        changes=(RegimeChange(logit=-3.8, from_record=200),),
        records=400,
        output_tokens=_LENGTHS,
    ),
    _steady("steady-80", 80, 1.46),
    _steady("steady-50", 50, 0.0),
    _steady("steady-10", 10, -2.6, apart=1.0),
    _steady("steady-5", 5, -3.4, apart=1.0),
    HazardModel(
        name="edge-cloud-gsm8k",
        source="set so that at K = 8 all are accepted with probability .73 after a step that "
        "accepted all and .41 after one that accepted none, as measured on gsm8k "
        "(AEM001/Edge-Cloud-Speculative-Decoding)",
        position_logits=(0.0,),
        state_logits=(2.05, 5.4),
        transitions=_two_states(0.987),
        request_deviation=0.2,
        output_tokens=(400,),
    ),
    HazardModel(
        name="eagle-gsm8k",
        source="fitted to EAGLE-3 on gsm8k, Llama-3.1-8B, greedy: 300 requests of "
        "SpecDecode-Bench (arXiv 2601.11580)",
        position_logits=(-0.0788, -0.4324, -0.6039, -0.6177, -0.9259, -0.8791, -1.0041, -1.5807),
        state_logits=(-2.8688, 0.819, 2.2185),
        transitions=(
            (0.34738, 0.44083, 0.21179),
            (0.03788, 0.93096, 0.03116),
            (0.06361, 0.02964, 0.90675),
        ),
        request_deviation=0.18,
        output_tokens=(79, 108, 126, 138, 150, 162, 173, 185, 206, 254, 291),
    ),
    HazardModel(
        name="ngram-gsm8k",
        source="fitted to n-gram lookup on gsm8k, Llama-3.1-8B, greedy: 300 requests of "
        "SpecDecode-Bench (arXiv 2601.11580)",
        position_logits=(-0.5024, -0.2411, -1.0803, -0.4083, 1.4922, 2.0077, 2.3745, 1.667),
        state_logits=(-6.2493, -3.2658, 3.957),
        transitions=(
            (0.91899, 0.03988, 0.04113),
            (0.02665, 0.88492, 0.08843),
            (0.2188, 0.11859, 0.66261),
        ),
        request_deviation=0.833,
        output_tokens=(83, 109, 126, 139, 152, 164, 173, 186, 207, 254, 305),
    ),
)
_BY_NAME = {model.name: model for model in _MODELS}


def model_names() -> tuple[str, ...]:
    """Names of the models that come with the package, but for ``constant:HAZARD``."""
    return tuple(_BY_NAME)


def shipped_model(name: str) -> HazardModel:
    """A model by name; ``constant:HAZARD`` is the independent one, for closed formulas.

    Raises DataError naming the models there are.
    """
    kind, _, hazard = name.partition(":")
    if kind == _CONSTANT:
        try:
            return constant_model(float(hazard))
        except ValueError as error:
            raise DataError(
                f"{PREFIX}{name}: give the hazard as a number, such as {PREFIX}{_CONSTANT}:0.8"
            ) from error
    if name not in _BY_NAME:
        raise DataError(
            f"{PREFIX}{name}: no such model; there are {', '.join(_BY_NAME)} and {_CONSTANT}:HAZARD"
        )
    return _BY_NAME[name]
