"""The drafters by name.

A name may carry options: ``draft_model:share=0.1``, ``lookahead:window=10,guesses=10``.
"""

from __future__ import annotations

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.drafters.chains import Block, DraftModel, Eagle, EarlyExit, Mtp, NoDrafter
from adaptive_spec.sim.drafters.lookups import Hybrid, Lookahead, Ngram, Suffix
from adaptive_spec.sim.drafters.trees import Eagle2Tree, EagleTree, Medusa, TokenTree

FAMILIES: tuple[type[Drafter], ...] = (
    NoDrafter,
    DraftModel,
    Eagle,
    EagleTree,
    Eagle2Tree,
    Medusa,
    Lookahead,
    EarlyExit,
    Ngram,
    Suffix,
    Hybrid,
    Mtp,
    Block,
    TokenTree,
)


def drafter(name: str) -> Drafter:
    """The drafter of this name, ``NAME`` or ``NAME:option=value,...``.

    Raises ConfigError for an unknown name, an unknown option or a value that does not fit.
    """
    plain, colon, text = name.partition(":")
    family = next((each for each in FAMILIES if each.name == plain), None)
    if family is None:
        names = ", ".join(each.name for each in FAMILIES)
        raise ConfigError(f"unknown drafter {plain!r}; there are: {names}")
    options = _options(name, text) if colon else {}
    try:
        return msgspec.convert(options, family, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(family.__struct_fields__) or "none"
        raise ConfigError(f"drafter {name!r}: {error}; its options: {known}") from error


def _options(name: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(
                f"drafter {name!r}: {part!r} is no option; write NAME:option=value,option=value"
            )
        if key in options:
            raise ConfigError(f"drafter {name!r}: option {key!r} is given twice")
        options[key] = value.strip()
    return options
