"""Choose the drafts to verify: the exact planner, one K for a batch, and the forecast of a step."""
