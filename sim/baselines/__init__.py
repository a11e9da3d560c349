"""Baselines: rules of other systems, as faithful as public facts allow, with their faults.

The attribute `provenance` of each policy names its source.
"""
