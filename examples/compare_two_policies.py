"""Replay the acceptance of a trace under two policies, and plot what each would have served.

`python examples/compare_two_policies.py [TRACE] [PICTURE]`, after `pip install
'.[sim]'` in a checkout. Acceptance is the trace's, the time of each step that of a modelled H100.
"""

import sys

import matplotlib.pyplot as plt

from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate

trace = sys.argv[1] if len(sys.argv) > 1 else "record:good_t0.8"  # or a folder of steps-*.jsonl
clients = [1, 4, 16, 64]
for policy in ("static:k=4", "goodput"):
    rates = []
    for count in clients:
        setting = Scenario(load=f"closed:{count}", acceptance=(trace,), drafter="eagle",
                           hardware="h100-llama-8b", seed=0, tokens=1000 * count)  # fmt: skip
        rates.append(simulate(setting, parse_policy(policy)).throughput_tok_s)
        print(f"{policy}, {count} clients: {rates[-1]:.0f} tokens/s")
    plt.loglog(clients, rates, marker="o", label=policy)
plt.xlabel("clients")
plt.ylabel("tokens/s")
plt.legend()
plt.savefig(sys.argv[2] if len(sys.argv) > 2 else "two_policies.png")
