"""Several tenants that share a server, each with a load of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.request import ANY_RECORD, Request


@dataclass(frozen=True, eq=False)
class Tenant:
    """One of them. What is None is left as the load has it.

    Attributes:
        name: unique; becomes the requests' tenant, and the beginning of their ids.
        load: when its requests come, and how long they are.
        task: label of its requests. One that followed a record of another label follows any
            record with this label.
        tpot_target: seconds per output token asked for.
        temperature: sampling temperature.
    """

    name: str
    load: Load
    task: str | None = None
    tpot_target: float | None = None
    temperature: float | None = None

    def sent(self, request: Request) -> Request:
        """A request of its load as the server sees it."""
        task = request.task if self.task is None else self.task
        return msgspec.structs.replace(
            request,
            id=f"{self.name}/{request.id}",
            tenant=self.name,
            task=task,
            record=request.record if task == request.task else ANY_RECORD,
            tpot_target=request.tpot_target if self.tpot_target is None else self.tpot_target,
            temperature=request.temperature if self.temperature is None else self.temperature,
        )


class TenantMix:
    """A load in which the requests of all tenants come in order of arrival.

    Open and closed tenants may be mixed; with one closed tenant the mix counts as closed, since
    the server then always has work. On a tie the tenant named first goes first.

    Raises ConfigError if there are no tenants, or two of one name.
    """

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        if not tenants:
            raise ConfigError("a mix needs at least one tenant")
        names = [tenant.name for tenant in tenants]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two tenants are named {name!r}")
        self.closed = any(tenant.load.closed for tenant in tenants)
        self.endless = any(tenant.load.endless for tenant in tenants)
        self._tenants = tuple(tenants)
        self._under_way: dict[str, tuple[Tenant, Request]] = {}
        """By the id the server sees: whose it is, and the request as its load made it."""

    def next_arrival(self) -> float:
        """Arrival of the next request of any tenant."""
        return min(tenant.load.next_arrival() for tenant in self._tenants)

    def take(self) -> Request:
        """Return that request."""
        tenant = min(self._tenants, key=lambda each: each.load.next_arrival())
        own = tenant.load.take()
        request = tenant.sent(own)
        self._under_way[request.id] = (tenant, own)
        return request

    def finished(self, request: Request, now: float) -> None:
        """Report the end of a request to its tenant."""
        tenant, own = self._under_way.pop(request.id)
        tenant.load.finished(own, now)
