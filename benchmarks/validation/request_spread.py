"""What V9's cells become if requests differ in how well they are drafted for.

    python -m benchmarks.validation.request_spread [--deviation 0.7] [--clients 8 64]

V9 gives all requests of a cell one hazard. The audit on the H100 waits for the slowest request of
each batch, so requests that differ cost it throughput at the same accepted length. This prints its
cells with the logit of the hazard spread by a normal law, at the accepted length that is published.
"""

from __future__ import annotations

import argparse

import numpy as np

from adaptive_spec.sim.acceptance.hazard import HazardModel, generate
from adaptive_spec.sim.results.result import Result
from benchmarks.validation.arms import Arms, simulated
from benchmarks.validation.at_load import published

_HALVINGS = 12


def spread(arms: Arms, k: int, accepted_length: float, deviation: float) -> Result:
    """Fixed K with this accepted length; the logit of the hazard differs by `deviation`."""
    lengths = np.array(arms.lengths, dtype=np.int64)
    low, high = -4.0, 4.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        model = HazardModel(name="spread", position_logits=(middle,), request_deviation=deviation)
        data = generate(model, depth=k, seed=1, output_tokens=lengths)
        found = simulated(arms.load(), data, arms.profile, k, drafter=arms.drafter)
        short = 1.0 + found.accepted_per_step < accepted_length
        low, high = (middle, high) if short else (low, middle)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deviation", type=float, default=0.7)
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 64])
    given = parser.parse_args()
    for table in published():
        if table.arrivals != "batches" or table.role != "validate":
            continue
        for clients in given.clients:
            arms = table.arms(clients)
            plain = arms.plain().throughput_tok_s
            for k, length, ratio in (row[1:] for row in table.rows if row[0] == clients):
                same = arms.speculating(k, length).throughput_tok_s / plain
                differ = spread(arms, k, length, given.deviation).throughput_tok_s / plain
                print(
                    f"{table.name}, {clients} clients, K = {k}: published {ratio:.3f}, "
                    f"one hazard {same:.3f}, spread {differ:.3f}"
                )


if __name__ == "__main__":
    main()
