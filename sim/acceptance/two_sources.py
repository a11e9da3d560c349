"""Records of two sources of drafts for the same text, which come with the package.

``record:real_text_t0`` is a language model's own answers, with its drafter's confidence, and
``record:real_text_t0.7`` is the same at a temperature: chat, code, edit, extract, summary, sums,
story, talk (`benchmarks/real_model`).

``record:two_sources`` is text of packages that a toy drafts for: prose, code, edit, quote, agent,
json. Behind its name, ``+others`` gives the look-up the answers of other requests, too; ``+target``
judges the drafter's drafts by its own target instead of the text. Behind the name of real text,
``+suffix`` gives the look-up alone suffix trees in place of n-grams.

Behind a name, ``:KIND`` is one kind of text. docs/mechanisms.md says what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import AcceptanceData, LookedUp
from adaptive_spec.sim.acceptance.pool import select
from adaptive_spec.sim.acceptance.recorded import load_npz

_FOLDER = Path(__file__).parent
FILE = _FOLDER / "two_sources.npz"
REAL_TEXT = ("real_text_t0", "real_text_t0.7")
NAMES = (FILE.stem, *REAL_TEXT)
_COMMON = ("text", "own_right", "own_proposed", "own_match")
ARRAYS = ("target", "others_right", "others_proposed", "others_match")
REAL_ARRAYS = ("confidence", "ngram_right", "ngram_proposed")
"""Arrays [P] of a file. Of all: leading drafts of the drafter that are the next tokens; those of a
look-up in the request's own text (suffix trees), with all that it found and the length of the
match. Of `two_sources`: drafts that the drafter's target finds likeliest; the look-up in answers of
others, too. Of real text: [P, 8] probability of each draft in 255ths; drafts of n-gram look-up; and
`tokens`, the newest token at each position, which nothing here reads."""
RECORDED_DRAFTS = 8


def names_two_sources(text: str) -> bool:
    """Return whether a record's name, without its prefix, is one of these."""
    return text.partition(":")[0].partition("+")[0] in NAMES


def shipped_two_sources(
    text: str, drafter_list: str, *, depth: int, file: Path | None = None
) -> AcceptanceData:
    """Records of one kind of text, or of all.

    Args:
        text: ``two_sources[+others][+target][:KIND]``, or ``real_text_t0[+suffix][:KIND]``.
        drafter_list: ``eagle`` for the drafter alone, ``ngram`` for the look-up alone (of real
            text, vLLM's n-gram), and ``eagle+ngram`` for both, where real text has suffix trees;
            other names stand for a drafter.
        depth: drafts known at each position, at most `RECORDED_DRAFTS`.
        file: the records, in the place of those of this name.

    Raises DataError for a file that is not whole, an unknown kind, or more drafts than there are.
    """
    name, _, kind = text.partition(":")
    name, *options = name.split("+")
    real = name in REAL_TEXT
    if name not in NAMES or not ({"suffix"} if real else {"others", "target"}).issuperset(options):
        raise DataError(
            f"{text}: no such record; there is {FILE.stem}[+others][+target][:KIND], "
            f"{'[+suffix][:KIND], '.join(REAL_TEXT)}[+suffix][:KIND]"
        )
    if depth > RECORDED_DRAFTS:
        raise DataError(f"{text} holds {RECORDED_DRAFTS} drafts of each position, not {depth}")
    arrays = _load(file or _FOLDER / f"{name}.npz", REAL_ARRAYS if real else ARRAYS)
    drafter, _, lookup = drafter_list.partition("+")
    copied = drafter == "ngram"
    which = "others" if "others" in options else "own"
    if real and copied and "suffix" not in options:
        which = "ngram"
    drafts = arrays["target" if "target" in options else "text"]
    right, proposed = (
        np.minimum(arrays[f"{which}_{each}"], depth).astype(np.uint8)
        for each in ("right", "proposed")
    )
    sure = arrays.get("confidence")
    data = AcceptanceData(
        name=text,
        source=f"{name}.npz: drafts for real text at every position, by {drafter_list}",
        accepted=right if copied else np.minimum(drafts, depth).astype(np.uint8),
        offsets=np.concatenate([[0], np.cumsum(arrays["length"])]).astype(np.int64),
        prompt_tokens=arrays["prompt_tokens"].astype(np.int64),
        labels=tuple(arrays["label"].tolist()),
        depth=depth,
        proposed=proposed if copied else None,
        confidence=(
            None if copied or sure is None else (sure[:, :depth] / 255.0).astype(np.float32)
        ),
        temperature=float(name.rpartition("_t")[2]) if real else 0.0,
        drafter_list=drafter_list,
        lookup=LookedUp(right, proposed, arrays[f"{which}_match"]) if lookup else None,
    )
    if not kind:
        return data
    chosen = np.flatnonzero(arrays["label"] == kind)
    if not chosen.size:
        kinds = ", ".join(dict.fromkeys(data.labels))
        raise DataError(f"{text}: no such kind of text; there are {kinds}")
    return select(data, chosen)


def _load(file: Path, more: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    each_position = (*_COMMON, *more)
    arrays = load_npz(file, ("length", "prompt_tokens", "label", *each_position))
    whole = {name: array for name, array in arrays.items() if name != "label"}
    bad = [
        name
        for name, array in whole.items()
        if array.dtype.kind != "u"
        or array.shape[1:] != ((RECORDED_DRAFTS,) if name == "confidence" else ())
    ]
    if bad or arrays["label"].dtype.kind != "U":
        raise DataError(f"{file}: {', '.join(bad) or 'label'}: not a list of numbers, or of texts")
    records, positions = len(arrays["length"]), int(arrays["length"].sum())
    sizes = {records: ("prompt_tokens", "label"), positions: each_position}
    for size, names in sizes.items():
        short = [name for name in names if len(arrays[name]) != size]
        if short:
            raise DataError(f"{file}: {', '.join(short)}: not {size} long; the file is not whole")
    drafts = [arrays[name].max() for name in ("text", "target") if name in arrays]
    if not records or not arrays["length"].all() or max(drafts) > RECORDED_DRAFTS:
        raise DataError(f"{file}: an answer without tokens, or more than {RECORDED_DRAFTS} drafts")
    for which in ("own", "others", "ngram"):
        if f"{which}_right" not in arrays:
            continue
        right, proposed = arrays[f"{which}_right"], arrays[f"{which}_proposed"]
        match = arrays.get(f"{which}_match", proposed)
        if (right > proposed).any() or ((proposed > 0) != (match > 0)).any():
            raise DataError(f"{file}: {which}: more drafts right than found, or found nowhere")
    return arrays
