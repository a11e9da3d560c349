"""Runs vLLM's acceptance estimator on recorded rounds, its kernels in Triton's interpreter.

Its own process: Triton only interprets if it is told so before it is first imported. Without a GPU
vLLM replaces Triton by a dummy, so the file is loaded alone, with the real Triton.

    python run_estimator.py ROUNDS.npz     prints the coefficients after every refit, as JSON
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = "v1/worker/gpu/spec_decode/acceptance_estimator.py"


def load_estimator() -> Any:
    """vLLM's module, without the rest of vLLM."""
    os.environ["TRITON_INTERPRET"] = "1"
    import triton
    import triton.language

    utilities = ModuleType("vllm.triton_utils")
    vars(utilities).update(triton=triton, tl=triton.language)
    sampler = ModuleType("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")
    vars(sampler).update(_compute_max_and_sumexp=None)  # of predict(), which isn't called
    sys.modules.update({module.__name__: module for module in (utilities, sampler)})
    package = importlib.util.find_spec("vllm")
    assert package.origin is not None
    spec = importlib.util.spec_from_file_location("estimator", Path(package.origin).parent / FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(file: str) -> None:
    """Feed the rounds: features [S, B, K], verified and accepted [S, B]."""
    module = load_estimator()
    import numpy as np
    import torch

    rounds = np.load(file)
    _, batch, positions = rounds["features"].shape
    estimator = module.OnlineAcceptanceEstimator(batch, positions, torch.device("cpu"))
    slots = torch.arange(batch, dtype=torch.int32)
    found = [_coefficients(estimator)]
    for features, verified, accepted in zip(
        rounds["features"], rounds["verified"], rounds["accepted"], strict=True
    ):
        estimator.features[:] = torch.tensor(features, dtype=torch.float32)
        odds = estimator.slope * estimator.features + estimator.intercepts
        estimator.predictions[:] = torch.sigmoid(odds)
        refits = estimator._refits
        estimator.step(
            slots,
            torch.tensor(accepted + 1, dtype=torch.int32),
            torch.tensor(verified - accepted, dtype=torch.int32),
        )
        if estimator._refits > refits:
            found.append(_coefficients(estimator))
    print(json.dumps(found))


def _coefficients(estimator: Any) -> dict[str, Any]:
    return {"slope": float(estimator.slope), "intercept": estimator.intercepts.tolist()}


if __name__ == "__main__":
    main(sys.argv[1])
