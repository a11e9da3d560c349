"""Probability that a draft is accepted, learned online.

History by position, request and sampling; drafts' confidence; calibration; change detection.
"""
