"""Acceptance data: every source brought into one form, `AcceptanceData`."""
