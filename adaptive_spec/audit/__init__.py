"""Measured gain: in a small random part of the steps another arm runs beside the policy.

Imports nothing of policies or engines, and uses nothing that a policy believes.
"""
