"""The judge on the clock of a GPU: real vLLM engines, stage by stage, and a page of results.

Several engines share the GPU, each in a process of its own with its own memory. Only one works at a
time, so arms are measured in turn, seconds apart, on the same card. An engine's core runs in the
process that sends its requests. `benchmarks/judge/first_call.sh` runs it in two calls of minutes.
"""
