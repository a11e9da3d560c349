"""Verdicts that do not follow from the rule alone, and why."""

from __future__ import annotations

REASONS: dict[str, tuple[str, str]] = {
    "TPOT weights": (
        "keep",
        "below the rule. Latency targets are a signal that operators ask for, so the strength was "
        "looked at instead: 4, 15 and 60 were tried on one seed of six of these cells. 15 and 60 "
        "cost throughput, 60 also most targets; 4 stands in the next line, over all seeds.",
    ),
    "graph choice": (
        "keep if mended",
        "as it is, the rule says cut. The cost model learns from ragged steps, whose time has the "
        "penalty in it, and the planner adds the penalty again. With the ragged share of the "
        "verify time taken off in `CostModel.learn` (an experiment, two seeds, against no graph "
        "choice): 70B, gsm8k at 16 clients -.75 becomes -.05, own-good at 16 +1.85 becomes +2.36, "
        "at 64 +.40 becomes +.61, at 256 -.45 becomes -.01; 8B, mixed at 64 -.32 becomes -.63. "
        "Half of the mean is own-good at 16.",
    ),
    "task labels": (
        "keep",
        "below the rule over all six cells. +.36 on the four whose labels accept differently, 0 on "
        "the other two; that these four are the right ones was said after seeing it.",
    ),
    "imputation": (
        "keep",
        "below the rule over all six cells. +.88 and +.47 at 64 and 256 clients with AUC .85, and "
        "+.34 on the mixed cell with confidence; 0 or less on the others. Which cells leave many "
        "drafts out was said after seeing it.",
    ),
    "prompt slope": (
        "open",
        "the mean is within its error: single seeds of Azure's code lie up to 7 points apart, and "
        "one cell loses 2. Three seeds do not judge it.",
    ),
    "model selection": (
        "cut",
        "where confidence tells nothing it brings +.38, +.11 and +.14 at 1, 64 and 256 clients; 0 "
        "or less on most recorded signals; and it saves no decision time (690 against 688 µs).",
    ),
    "slow average": (
        "cut",
        "one average is enough, and it is the quick one: alone it does as well on requests that "
        "differ for good. The line above is what it adds. Only `rises` at 16 clients may want "
        "it: +.88 ± .48 over eight seeds, run apart from this table.",
    ),
    "trial": (
        "keep",
        "below the rule over all its cells, and it costs .75 and .57 on the first steps of a "
        "drafter of no use. But `rises` at 16 clients, run apart over eight seeds, has +2.27 ± "
        "1.13 by it, and +2.32 ± .85 by it and the slow average together.",
    ),
    "exploration, all of it": (
        "keep",
        "what it brings on the mixed cells is what is meant, no cost elsewhere.",
    ),
}
