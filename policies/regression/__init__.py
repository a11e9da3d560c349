"""A policy whose hazards were fitted offline: `adaptive-spec fit` makes the model file."""
