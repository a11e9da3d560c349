"""What the drafter says of its own drafts, read in the worker and carried to the scheduler.

    values      maximum probability and entropy by request and position
    tap         what watches a drafter: rounds under way, faults of ours
    model_tap   draft_model, eagle, eagle3, mtp: from the drafter's logits
    v2_tap      the same on model runner V2, by its certainty_kernel
    lookup_tap  n-gram and suffix: from how much text matched
    worker      the worker classes that take the values along

With synchronous scheduling the values arrive with the draft tokens, before the step that verifies
them is planned. With asynchronous scheduling they arrive with the results of the step that made
the drafts, when the step that verifies them is under way: too late to choose by, in time to learn
from. On model runner V2 a GPU's arrive one step later still.
"""
