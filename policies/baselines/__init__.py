"""Peers: what others use today, as faithful as public facts allow, faults kept.

Each says where it comes from in `provenance`.
"""
