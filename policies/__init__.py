"""Policies, one per file behind the contract of `adaptive_spec.policy`."""

if not __name__.startswith("adaptive_spec."):
    # A top-level import means that the working directory is on sys.path. A second copy of the
    # module would define a second set of classes.
    raise ImportError("import adaptive_spec.policies, not policies")
