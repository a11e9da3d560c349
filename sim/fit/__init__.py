"""Fits the model of the `regression` policy to recorded steps; behind `adaptive-spec fit`."""
