"""Hazard models that come with the package, by name: ``model:NAME`` wherever a file is asked for.

They stand in ``models.json``, each with its source. Except `constant` none is independent from step
to step.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.hazard import HazardModel, constant_model

PREFIX = "model:"
_CONSTANT = "constant"


SHIPPED = {
    model.name: model
    for model in msgspec.json.decode(
        Path(__file__).with_suffix(".json").read_bytes(), type=tuple[HazardModel, ...]
    )
}


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
    if name not in SHIPPED:
        raise DataError(
            f"{PREFIX}{name}: no such model; there are {', '.join(SHIPPED)} and {_CONSTANT}:HAZARD"
        )
    return SHIPPED[name]
