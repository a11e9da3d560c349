"""What to verify: the exact planner, its forecast and weights, and exploration.

Speculation as a whole is switched on and off in `on_off`.
"""
