"""Parts of a load: from when, for how long, how much faster."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from adaptive_spec.sim.load.request import Request


def sliced(
    requests: Iterator[Request], *, skip: float = 0.0, first: float = math.inf, rate: float = 1.0
) -> Iterator[Request]:
    """Requests that arrive in skip <= t < skip + first, with (t - skip) / rate as their arrival.

    Args:
        requests: in order of arrival; read no further than needed.
        skip: seconds of the load to leave out at its start.
        first: seconds of the load to keep after that.
        rate: how many times faster they come, > 0.
    """
    for request in requests:
        if request.arrival < skip:
            continue
        since = request.arrival - skip
        if since >= first:
            return
        yield msgspec.structs.replace(request, arrival=since / rate)
