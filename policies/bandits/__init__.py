"""Bandits over K: `ucb` (index), `thompson` (posterior), `linucb` (contextual, K per request).

All learn the hazards of draft positions from the cascade feedback of verification: a step that
verified K shows every shallower position too, so all K share what is learned. The value of a K is
its expected tokens over its predicted seconds.
"""
