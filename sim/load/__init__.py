"""Loads: arrival and lengths of requests."""
