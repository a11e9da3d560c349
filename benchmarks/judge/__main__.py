"""Run `python -m benchmarks.judge` with the variables of the engine that is installed here."""

import sys

from .engines import SGLANG, VLLM
from .main import main
from .processes import begin_anew
from .start import environment, installed

if __name__ == "__main__":  # each process of the pool imports this module, too
    begin_anew("benchmarks.judge", environment(SGLANG if installed(SGLANG) else VLLM))
    sys.exit(main())
