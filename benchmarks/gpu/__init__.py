"""Evidence from one GPU: real vLLM engines, stage by stage, and a page of results.

Several engines share the GPU. Each has its own memory, and only one works at a time, so arms are
measured in turn, seconds apart, on the same card.

    main             command line: which stages, until when
    stages/          smoke, sweep, own time, step costs, graphs
    arms             what an arm is: an engine and how it is set
    setups           engines by key, as vLLM's arguments
    fleet            engine processes: start, ask, stop
    engine_process   the program of such a process
    engine           one vLLM engine
    closed_loop      clients that send their next request when the last is answered
    shapes           decode steps of a given batch, K and context
    greedy           greedy answers, and whether the target agrees with them
    in_core          what is read and set inside EngineCore
    steered          the policy that runs a K it is told
    results          results by key in a file that survives a kill
    summary, page    one JSON of all results, and a page
    profile          a hardware profile for the simulator
    simulated        the simulator against the sweep
    pack, unpack     vLLM for a GPU machine without a network

`benchmarks/judge/first_call.sh` runs it in two calls of minutes.
"""
