"""Off-policy evaluation: estimates of another policy's throughput from a recorded trace.

`logged_steps` reads the trace, `draws` says what was randomised, `replayed` lets a policy plan
every recorded step, `step_model` predicts tokens and seconds, `doubly_robust` puts them together,
`intervals` says how sure that is, `evaluation` runs it all. Theory and limits: docs/simulator.md.
"""
