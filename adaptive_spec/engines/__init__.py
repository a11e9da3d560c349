"""Parts that the adapters share; none imports an engine.

Steps: `step_clock`, `pending_steps`, `ladder`. Requests: `request_table`, `hints`. Hooks that never
raise: `fail_open`. Version, source and configuration of the installed engine: `versions`,
`source_facts`, `source_check`, `support`, `doctor_rows`.
"""
