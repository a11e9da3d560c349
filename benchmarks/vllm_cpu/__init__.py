"""Throughput of real vLLM engines on a CPU: no speculation, every static K, vLLM's schedule, ours.

Layout, in the order of a run::

    main         entry point: conditions, warm-up, rounds, results
    options      the command line
    arms         what is compared, and which engine process serves which arm
    engines      the parent's side of the engine processes
    machine_lock exclusive use of the machine, where others share it
    rounds       the order of the cells: interleaved, rotated, repeated, resumed
    schedule     vLLM's table of K by batch size, tuned from the static results
    cells        one measurement, and the file that every one is appended to
    ratios       medians, spreads, ratios, measurements left out
    results      table and JSON file of a condition
    collection   many conditions in one file
    summary      all conditions together
    recording    step traces for the simulator; `packing` makes them small
    simulated    the cells in the simulator, for `sim_against_vllm_cpu.py`

    engine_process, engine    the child's side: one vLLM engine, worked by a closed loop of clients
    random_k                  a policy whose steps identify what each part of a step costs

Each engine runs in a process of its own, with vLLM's EngineCore in it, and is stepped by the loop
that measures: no HTTP, and no process that spins while another one is measured.
"""
