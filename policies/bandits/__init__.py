"""Bandits over K.

All bandits use the cascade feedback of verification: a step that verified K shows every shallower
position too. Hazards are therefore learned by position and shared by all K, and an arm's value is
its expected tokens over its predicted seconds.

`base` runs a step, `cascade_learner` learns; each policy adds its exploration. `linear_policy` is
the base of the two linear bandits, which decide per request.
"""
