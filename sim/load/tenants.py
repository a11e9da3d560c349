"""Several tenants that share a server, each with a load of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.description import Tenant
from adaptive_spec.sim.load.request import ANY_RECORD, Request


class TenantMix:
    """A load in which the requests of all tenants come in order of arrival.

    Open and closed tenants may be mixed; with one closed tenant the mix counts as closed, since
    the server then always has work. On a tie the tenant named first goes first.

    Args:
        tenants: each with its load.

    Raises ConfigError if there are no tenants, or two of one name.
    """

    def __init__(self, tenants: Sequence[tuple[Tenant, Load]]) -> None:
        if not tenants:
            raise ConfigError("a mix needs at least one tenant")
        names = [tenant.name for tenant, _ in tenants]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two tenants are named {name!r}")
        self.closed = any(load.closed for _, load in tenants)
        self.endless = any(load.endless for _, load in tenants)
        self._tenants = tuple(tenants)
        self._under_way: dict[str, tuple[Load, Request]] = {}
        """By the id the server sees: whose load it is, and the request as that made it."""

    def next_arrival(self) -> float:
        """Arrival of the next request of any tenant."""
        return min(load.next_arrival() for _, load in self._tenants)

    def take(self) -> Request:
        """Return that request."""
        tenant, load = min(self._tenants, key=lambda each: each[1].next_arrival())
        own = load.take()
        request = _sent(tenant, own)
        self._under_way[request.id] = (load, own)
        return request

    def finished(self, request: Request, now: float) -> None:
        """Report the end of a request to its tenant."""
        load, own = self._under_way.pop(request.id)
        load.finished(own, now)


def _sent(tenant: Tenant, request: Request) -> Request:
    """A request of a tenant's load as the server sees it."""
    task = request.task if tenant.task is None else tenant.task
    target, temperature = tenant.tpot_ms, tenant.temperature
    return msgspec.structs.replace(
        request,
        id=f"{tenant.name}/{request.id}",
        tenant=tenant.name,
        task=task,
        record=request.record if task == request.task else ANY_RECORD,
        tpot_target=request.tpot_target if target is None else target / 1e3,
        temperature=request.temperature if temperature is None else temperature,
    )
