"""The cost of adaptive-spec in a step, side by side in one engine.

One vLLM engine with our plugin serves a full batch with a fixed K. Every few steps another arm
runs: vLLM alone (our scheduler, worker and hooks taken off its objects), the adapter without and
with the drafter's confidence, and the default policy deciding in shadow mode. All arms run the
same K on the same requests, so they differ in our code only. One round of all arms, in random
order, is a cycle; a ratio compares two arms of a cycle, so a machine that gets slower meets both.

Two figures for each arm:

* own code: time inside our functions over the time of the step they belong to;
* step ratio: the step's time over vLLM's alone, median over the cycles with a 95 % interval; by
  the clock, and by the CPU time of the process, which other processes disturb less.

    main         command line, one process per condition, JSON file
    engine       the engine and its arms
    own_code     which functions are ours; taking hooks off and putting them back
    ratios       medians, intervals, the table
"""
