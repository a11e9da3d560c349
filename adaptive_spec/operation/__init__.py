"""Operators' interfaces to a running server.

Status, metrics, step trace, saved state, control file, run-time switch.
"""
