"""What operators touch while a server runs.

Status, metrics, step trace, saved state, control file, run-time switch.
"""
