"""Run `python -m benchmarks.virtual_device`."""

import sys

from .main import main

sys.exit(main())
