"""`goodput2`: two Gaussian beliefs, one planner, one rule for trying, one switch."""
