"""What the adapters of several engines share; nothing here imports an engine.

Steps (`step_clock`, `pending_steps`, `ladder`), requests (`request_table`, `hints`), hooks that
never raise (`fail_open`), and which engine this is (`versions`, `source_facts`, `source_check`,
`support`, `doctor_rows`).
"""
