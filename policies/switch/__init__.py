"""Speculation on and off: modes, their break-even, the drafter's state, and probes while off."""
