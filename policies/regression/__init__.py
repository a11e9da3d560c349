"""Policy with hazards fitted offline; `adaptive-spec fit` writes the model file."""
