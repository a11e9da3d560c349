"""What an adapter talks to: `plan` before a step, `observe` after it.

Around the policy it checks plans, limits them to the free KV blocks, and fails open.
"""
