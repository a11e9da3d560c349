"""Verdicts that do not follow from the rule alone, and why."""

from __future__ import annotations

REASONS: dict[str, tuple[str, str]] = {}
