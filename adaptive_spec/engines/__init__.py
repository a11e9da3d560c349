"""Building blocks shared by the adapters of all engines.

Request hints, request table, step clock, pending steps, fail-open hooks, ladder rounding, facts
about engine sources, tested versions.
"""
