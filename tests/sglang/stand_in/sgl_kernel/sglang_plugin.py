"""What SGLang has to be told to use these operators; loaded by its own plugin entry point.

- The `intel_amx` attention backend, the only one for CPU that speculates, is refused without AMX;
  the stand-in needs none. What SGLang compiled for AMX stays off, see the package's docstring.
- SGLang verifies requests greedily on CPU whatever their temperature
  (`_verify_uses_greedy`, speculative/eagle_utils.py), for want of sampling operators.
  Here it gets them and takes the path that it takes on a GPU.
"""

import sys
from typing import Any


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.runtime_context import override_platform

    override_platform(has_amx=True).install()
    if "sglang.srt.managers.scheduler" in sys.modules:
        sample_when_verifying()


def sample_when_verifying() -> None:
    """Let the verification of sampled requests sample, as on a GPU."""
    from sglang.srt.speculative import eagle_utils

    import sgl_kernel

    from .renormalisation import top_k_renorm_prob, top_p_renorm_prob
    from .verification import tree_speculative_sampling_target_only

    by_platform = getattr(eagle_utils, "_verify_uses_greedy", None)
    if by_platform is None:  # in releases before 0.5.21 it can't be replaced
        return

    def verify_uses_greedy(**facts: Any) -> bool:
        return bool(by_platform(**(facts | {"is_cpu": False})))

    eagle_utils._verify_uses_greedy = verify_uses_greedy
    for module in (eagle_utils, sgl_kernel):  # 0.5.22 and before import them at each use
        module.top_k_renorm_prob = top_k_renorm_prob
        module.top_p_renorm_prob = top_p_renorm_prob
        module.tree_speculative_sampling_target_only = tree_speculative_sampling_target_only
