"""Look-up of a schedule, and what follows from it for the requests of a batch."""


def get_draft_len_for_batch_size(draft_len_schedule, batch_size, max_draft_len, min_draft_len=0):
    """Keys are upper bounds of the batch size; above the largest, 0."""
    if draft_len_schedule is None:
        return max_draft_len
    fitting = [k for bound, k in draft_len_schedule.items() if batch_size <= bound]
    return max(fitting[0] if fitting else 0, min_draft_len)


def is_dynamic(spec_config):
    return bool(
        spec_config is not None
        and spec_config.draft_len_schedule
        and spec_config.spec_dec_mode.support_dynamic_draft_len()
    )


def fill_up_or_cut(request, width):
    drafts = list(request.py_draft_tokens or ())[:width]
    request.py_draft_tokens = drafts + [0] * (width - len(drafts))


def resolve_draft_len(
    spec_config, scheduled_batch, *, max_draft_len, static_draft_len, draft_len=None
):
    """Return K, and give each decoding request exactly that many drafts."""
    if not is_dynamic(spec_config):
        return static_draft_len
    if draft_len is None:
        least = getattr(spec_config, "min_runtime_draft_len", 0)
        draft_len = get_draft_len_for_batch_size(
            spec_config.draft_len_schedule, scheduled_batch.batch_size, max_draft_len, least
        )
    for request in scheduled_batch.generation_requests:
        fill_up_or_cut(request, spec_config.get_runtime_tokens_per_gen_step(draft_len) - 1)
    return draft_len


def update_draft_len(
    model_engine, scheduled_batch, *, draft_len=None, speculation_permanently_disabled=False
):
    """The same for a model engine; an acceptance gate that has closed means 0."""
    if speculation_permanently_disabled:
        for request in scheduled_batch.generation_requests:
            request.py_draft_tokens = []
        model_engine.runtime_draft_len = 0
        return
    model_engine.runtime_draft_len = resolve_draft_len(
        model_engine.spec_config,
        scheduled_batch,
        max_draft_len=model_engine.max_draft_len,
        static_draft_len=model_engine.max_draft_len,
        draft_len=draft_len,
    )
