"""Bandits: K chosen by trial, each in two forms.

The *cascade* form uses what verification reveals: a step that verified K shows every shallower
position too, so hazards are learned per position and shared by all K, and an arm's value is
expected tokens over predicted seconds. The *plain* form takes the K values as unrelated arms and
learns the tokens per second of each; it is here to be compared with.

`base` runs a step, `plain_form` and `cascade_form` learn; each policy adds how it explores.
`linear_policy` is the base of the two linear bandits, whose cascade form decides per request.
"""
