"""Acceptance that the scripted engines play, by name.

Llama-3.1-8B's lists are read from the data folder (`ADAPTIVE_SPEC_DATA`) and are no part of the
project; cells that need them are left out where there is none.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.confidence import with_confidence
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.hazard import HazardModel, RegimeChange, generate, logit
from adaptive_spec.sim.data_folder import data_folder
from adaptive_spec.sim.drafters.registry import drafter

from .device import DRAFTERS
from .script import Lines
from .trees import TREE, right_by_depth

_LLAMA = "unlicensed/acceptance_specdecodebench_llama31_8b_{}.jsonl.gz"
LLAMA = {"gsm8k": ("gsm8k",), "code": ("instructcoder",), "both": ("gsm8k", "instructcoder")}
MATCH = {"llama:gsm8k": 0.2, "llama:code": 0.8}
"""P(an n-gram matches | nothing would be accepted), of the same publication (arXiv 2601.11580)."""
STRETCH = 700
"""Tokens of an answer after which its acceptance changes."""
SEED = 7
"""Of everything that is drawn in making records; a seed of traffic draws which are played."""


@functools.cache
def lines(name: str, method: str, kmax: int) -> Lines:
    """Records by name, as a drafter's method plays them.

    ``llama:gsm8k``, ``llama:code``, ``llama:both``: Llama-3.1-8B with EAGLE or n-gram. ``record:``
    and ``model:`` as in ``adaptive-spec replay --acceptance``. ``hazard:0.75``: a drafter whose
    drafts are accepted with this probability in the mean, in easy and hard passages;
    ``hazard:0.8-0.5-0.7``: in stretches of `STRETCH` tokens of long answers. ``@auc=0.85``
    behind a name adds a made confidence of this AUC, ``+lookup`` the n-gram list as second source.

    Raises DataError for an unknown name, or where the data folder lacks the file.
    """
    plain, _, auc = name.partition("@auc=")
    plain, _, second = plain.partition("+lookup")
    if method == TREE:
        data = _data(plain, "eagle", kmax)
        return Lines(data, right_by_depth(data))
    listed = "ngram" if method == "ngram" else "eagle"
    data = _data(plain, listed if second == "" and "+lookup" not in name else "eagle+ngram", kmax)
    if auc:
        data = with_confidence(data, auc=float(auc), seed=SEED)
    matches = f":match={MATCH[plain]:g}" if method == "ngram" and plain in MATCH else ""
    return Lines(drafter(DRAFTERS[method] + matches).shape(data, np.random.default_rng(SEED)))


def _data(name: str, listed: str, kmax: int) -> AcceptanceData:
    kind, _, rest = name.partition(":")
    if kind == "llama":
        if rest not in LLAMA:
            raise DataError(f"no records {name!r}; there are llama:{', llama:'.join(LLAMA)}")
        folder = data_folder()
        files = [folder / _LLAMA.format(each) for each in LLAMA[rest]]
        for file in files:
            if not file.is_file():
                raise DataError(f"records {name!r}: no {file}")
        return load_acceptance(files, drafter_list=listed, seed=SEED, kmax=kmax)
    if kind == "hazard":
        model = passages(*map(float, rest.split("-")))
        return generate(model, depth=kmax, seed=SEED)
    return load_acceptance([name], drafter_list=listed, seed=SEED, kmax=kmax)


def passages(mean: float, *later: float) -> HazardModel:
    """Easy and hard passages of about 25 tokens, requests that differ; hazards about `mean`.

    Of several means, each holds for a stretch of an answer, the last one to its end.
    """
    middle = logit(mean)
    lengths = (48, 96, 144, 192, 256, 320, 416, 576)
    means = (mean, *later)
    return HazardModel(
        name=f"hazard:{'-'.join(f'{each:g}' for each in means)}",
        source=f"hazards about {mean:g} in passages of about 25 tokens",
        position_logits=(0.0,),
        state_logits=(middle - 0.7, middle + 0.7),
        transitions=((0.96, 0.04), (0.04, 0.96)),
        request_deviation=0.4,
        changes=tuple(
            RegimeChange(logit=logit(now) - logit(before), from_position=STRETCH * number)
            for number, (before, now) in enumerate(itertools.pairwise(means), start=1)
        ),
        records=100 if later else 400,
        output_tokens=tuple(STRETCH * len(means) * n // 4 for n in (2, 3, 4, 6))
        if later
        else lengths,
    )
