"""Run `python -m benchmarks.judge`."""

import sys

from .main import main

sys.exit(main())
