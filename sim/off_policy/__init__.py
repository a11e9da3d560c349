"""Off-policy evaluation: estimates of another policy's throughput from a recorded trace.

`logged_steps` reads the trace and says what was randomised, `evaluation` lets a policy plan every
recorded step, `step_model` predicts tokens and seconds, `doubly_robust` puts them together, and
`intervals` says how sure that is. Theory and limits: docs/simulator.md.
"""
