"""Bandits: K chosen by trial.

All use what verification reveals (a cascade): a step that verified K shows every shallower position
too, so hazards are learned by position and shared by all K, and an arm's value is expected tokens
over predicted seconds.

`base` runs a step, `cascade_learner` learns; each policy adds how it explores. `linear_policy` is
the base of the two linear bandits, which decide per request.
"""
