"""Fit of the `regression` policy's model to recorded steps (`adaptive-spec fit`)."""
