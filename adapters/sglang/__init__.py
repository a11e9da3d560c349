"""The SGLang adapter: see PATCHES.md for every hook and why it is there.

Layout, in the order a server meets it::

    plugin       entry point of `sglang.srt.plugins`, in every process
    settings     what the environment asks for
    versions, facts    which SGLang this is, and whether it still is what we know
    installation, hooks   where the hooks go and that SGLang applied them, and what they do
    steered_params  SGLang's own K, and our answer to its question what K is
    ngram_algorithm, ngram_worker   NGRAM with a K that changes, as a registered algorithm
    attach, capability    once the scheduler is built: what may be decided, and by whom
    steps        one step: plan before, outcome after
    context, outcome, agreement    what a step needs
    endpoint     status and switch over SGLang's HTTP server
    confidence, housekeeping    opt-in signal, logs
    doctor       what `adaptive-spec doctor` prints
"""
