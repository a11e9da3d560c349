"""Parts that the adapters share; none imports an engine.

Steps: `driver`. Requests: `request_table`, `hints`. Hooks that never
raise: `fail_open`. Version, source and configuration of the installed engine: `versions`,
`source_facts`, `source_check`, `support`, `rules`, `doctor_rows`.
"""
