"""`make demo-quick`: a real vLLM server whose speculation follows the load.

Layout, in the order of a run::

    run        entry point: stages, timings, exit status
    options    the command line
    command    the server's command line, environment and files
    model      what is served, and what it is asked
    server     start, wait, stop; `guard` ends it should the demo be killed
    traffic    chats over HTTP, in closed loops
    status     what the server writes about itself once a second
    load       load up and down; `view` and `page` show its `phases`, answers too
"""
