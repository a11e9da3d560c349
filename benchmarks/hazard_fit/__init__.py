"""Fits hazard models (`adaptive_spec.sim.acceptance.hazard`) to recorded acceptance."""
