"""Records of two sources of drafts for the same real text, which come with the package.

``record:two_sources`` is all kinds of text, mixed; ``record:two_sources:KIND`` is one of them:
prose, code, edit, quote, agent, json. Behind the name, ``+others`` gives the look-up the answers of
other requests, too; ``+target`` judges the drafter's drafts by its own target instead of the text.
docs/mechanisms.md says what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.sim.acceptance.pool import take
from adaptive_spec.sim.acceptance.recorded import load_npz

NAME = "two_sources"
_OPTIONS = {"others", "target"}
FILE = Path(__file__).with_name("two_sources.npz")
ARRAYS = (
    *("text", "target"),
    *("own_right", "own_proposed", "own_match"),
    *("others_right", "others_proposed", "others_match"),
)
"""Arrays [P] of the file: leading drafts of the drafter that are the next tokens, and that its
target finds likeliest; those of a look-up that are the next tokens, in the request's own text, and
in answers of others, too, with all that it found and the length of their match."""
RECORDED_DRAFTS = 8


def shipped_two_sources(
    text: str, drafter_list: str, *, depth: int, file: Path = FILE
) -> AcceptanceData:
    """Records of one kind of text, or of all.

    Args:
        text: ``two_sources[+others][+target][:KIND]``.
        drafter_list: ``eagle`` for the drafter alone, ``ngram`` for the look-up alone, and
            ``eagle+ngram`` for both; other names stand for a drafter.
        depth: drafts known at each position, at most `RECORDED_DRAFTS`.
        file: the records.

    Raises DataError for a file that is not whole, an unknown kind, or more drafts than there are.
    """
    name, _, kind = text.partition(":")
    name, *options = name.split("+")
    if name != NAME or not _OPTIONS.issuperset(options):
        raise DataError(f"{text}: no such record; there is {NAME}[+others][+target][:KIND]")
    if depth > RECORDED_DRAFTS:
        raise DataError(f"{text} holds {RECORDED_DRAFTS} drafts of each position, not {depth}")
    arrays = _load(file)
    which = "others" if "others" in options else "own"
    drafts = arrays["target" if "target" in options else "text"]
    right, proposed = (
        np.minimum(arrays[f"{which}_{each}"], depth).astype(np.uint8)
        for each in ("right", "proposed")
    )
    match = arrays[f"{which}_match"].astype(np.uint8)
    drafter, _, lookup = drafter_list.partition("+")
    copied = drafter == "ngram"
    data = AcceptanceData(
        name=text,
        source=f"{file.name}: drafts for real text at every position, by {drafter_list}",
        accepted=right if copied else np.minimum(drafts, depth).astype(np.uint8),
        offsets=np.concatenate([[0], np.cumsum(arrays["length"])]).astype(np.int64),
        prompt_tokens=arrays["prompt_tokens"].astype(np.int64),
        labels=tuple(arrays["label"].tolist()),
        depth=depth,
        proposed=proposed if copied else None,
        drafter_list=drafter_list,
        lookup=LookedUp(right, proposed, match) if lookup else None,
    )
    if not kind:
        return data
    chosen = np.flatnonzero(arrays["label"] == kind)
    if not chosen.size:
        kinds = ", ".join(dict.fromkeys(data.labels))
        raise DataError(f"{text}: no such kind of text; there are {kinds}")
    return take(data, chosen)


def _load(file: Path) -> dict[str, NDArray[Any]]:
    arrays = load_npz(file, ("length", "prompt_tokens", "label", *ARRAYS))
    whole = {name: array for name, array in arrays.items() if name != "label"}
    bad = [name for name, array in whole.items() if array.ndim != 1 or array.dtype.kind != "u"]
    if bad or arrays["label"].dtype.kind != "U":
        raise DataError(f"{file}: {', '.join(bad) or 'label'}: not a list of numbers, or of texts")
    records, positions = len(arrays["length"]), int(arrays["length"].sum())
    sizes = {records: ("prompt_tokens", "label"), positions: ARRAYS}
    for size, names in sizes.items():
        short = [name for name in names if len(arrays[name]) != size]
        if short:
            raise DataError(f"{file}: {', '.join(short)}: not {size} long; the file is not whole")
    if (
        not records
        or not arrays["length"].all()
        or max(arrays["text"].max(), arrays["target"].max()) > RECORDED_DRAFTS
    ):
        raise DataError(f"{file}: an answer without tokens, or more than {RECORDED_DRAFTS} drafts")
    for which in ("own", "others"):
        right, proposed, match = (
            arrays[f"{which}_{each}"] for each in ("right", "proposed", "match")
        )
        if (right > proposed).any() or ((proposed > 0) != (match > 0)).any():
            raise DataError(f"{file}: {which}: more drafts right than found, or found nowhere")
    return arrays
