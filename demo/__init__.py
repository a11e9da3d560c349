"""`make demo`: a real vLLM server whose speculation follows the load, beside servers whose doesn't.

Layout, in the order of a run::

    run        entry point: stages, timings, exit status
    options    the command line
    arms       which servers are compared, and their command lines
    model      what is served, and what it is asked
    servers    start, wait, pause, stop; `guard` ends them should the demo be killed
    traffic    chats over HTTP, in closed loops
    status     what our server writes about itself once a second
    act_one    load up and down against our server; `view` and `page` show it, answers too
    preview    the same by simulation, while servers start
    act_two    the same work for every arm, interleaved and repeated
    figures    medians, spreads and ratios out of that; `report` prints and saves them
"""
