"""The simulated engine: continuous batching with speculation, step by step.

Queue, KV pool, preemption, drafting, verification and what a step takes.
"""
