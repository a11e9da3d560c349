"""Results of a run, whole and by segment."""
