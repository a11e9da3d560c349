"""TensorRT-LLM's executor loop on a CPU, with the adapter in it.

As upstream's own tests that need no GPU, the harness builds a `PyExecutor` without its constructor
and sets its attributes: loops, sampling, updates and errors are the package's. Model, KV manager,
scheduler and traffic are the harness's, so it knows for every draft whether it is right.

`python -m harness` runs the table of `cases` on the installed package; the tests run the same
parts on `stand_in`.
"""
