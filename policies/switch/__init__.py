"""Speculation on and off: modes, their break-even, and probes while off.

Request lifetimes bound how long what was learned stays of use.
"""
