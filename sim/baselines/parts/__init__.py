"""Building blocks shared by several baselines."""
