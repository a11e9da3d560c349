"""Real engines on a modelled device: the clock is that of a GPU, all else is real.

A real engine runs in a process: its scheduler, its model runner, its drafter, its rejection, and
our adapter, with the small models of `benchmarks/bench_pair`. Kept for what a script cannot show:
that greedy text is the same for every arm, holes in a real KV cache, confidence as a server has it,
SGLang's workers. `against` compares the scripted engine with it.
"""
