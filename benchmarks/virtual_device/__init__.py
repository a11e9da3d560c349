"""Real engines on a modelled device: the clock is that of a GPU, all else is real.

A real engine runs in a process: its scheduler, its model runner, its drafter, its rejection, and
our adapter. Only time is modelled. When the results of a step arrive, the clock has advanced by
the time that the step takes on the device, computed from what ran: tokens, contexts, prompt
tokens, passes of the drafter. The adapter reads that clock. Greedy decoding gives every arm the
same tokens, so that two arms differ in virtual time alone.

Layout::

    device      what a step ran, and its seconds on a device (engine-independent)
    clock       the clock, and the record of the steps of a run (engine-independent)
    traffic     clients in a closed loop, a number of clients that changes, arrivals in time
    arms        what is compared
    runs        one run, and the file that holds all of them
    setup       how an engine is configured, and in which process and environment it runs
    vllm_engine vLLM in this process: model runner V1, or V2 in Triton's interpreter
    sglang_engine  SGLang's scheduler in this process
    worker      the program of an engine's process
    sweep       which runs a page needs, in the order of their value
    main        the command line: workers, progress, time left
    cells       the figures of a cell: an arm at a load on a device, over other arms
    page, pictures  docs/measured.md with its picture, and the table of README
    simulated_rows, simulated    the simulator, fed with the same records and the same charge
"""
