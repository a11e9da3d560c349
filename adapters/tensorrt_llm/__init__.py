"""The TensorRT-LLM adapter: see PATCHES.md for every hook and why it is there.

Layout, in the order a server meets it::

    hook_file    written into site-packages by `adaptive-spec trtllm install-hook`; tiny
    install      writes and deletes it; commands: the command line for that
    switch       what TLLM_ADAPTIVE_SPEC asks for
    contract     what is relied on upstream: symbols, signatures, order of calls
    patches      wraps upstream's functions once their module is imported
    capability   what this executor and configuration allow; ladder: which K have graphs
    steps        one iteration: context before, outcome after
    agreement    one K for all ranks
    versions, doctor   what was read and what was executed
    host_drafter, host_decisions    the 1.2.x route, without patches
"""
