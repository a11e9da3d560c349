"""The controller: an adapter calls `plan` before a step and `observe` after it.

The folder holds the checks around a policy: plan validation, KV memory guard, fail-open.
"""
