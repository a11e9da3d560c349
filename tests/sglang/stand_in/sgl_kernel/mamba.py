"""`sgl_kernel.mamba`: SGLang imports these names on CPU; the models served here don't use them."""

from typing import Any, NoReturn


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("stand-in: no state-space models; serve a plain Llama")


chunk_gated_delta_rule_cpu = _refuse
causal_conv1d_fn_cpu = _refuse
causal_conv1d_update_cpu = _refuse
