"""Bandits: `ucb` (index), `thompson` (posterior), `linucb` (contextual), as models of acceptance.

All learn the hazards of draft positions from the cascade feedback of verification: a step that
verified K shows every shallower position too, so all K share what is learned. `PlannedPolicy`
plans by the hazards that they offer, bounds or a sample, which favour what is observed less often.
"""
