"""Calls that differ between the vLLM versions of the table; `facts` names the alternatives."""

from __future__ import annotations

import asyncio
from typing import Any


async def call_all_engines(client: Any, method: str, *body: Any) -> list[Any]:
    """Call a method of every engine; their answers, in the order of the engines.

    Args:
        client: vLLM's asynchronous client of EngineCore.
        method: name of a method of EngineCore.
        body: its arguments.
    """
    if hasattr(client, "call_utility_all_async"):
        return list(await client.call_utility_all_async(method, *body))
    calls = (
        client._call_utility_async(method, *body, engine=engine) for engine in client.core_engines
    )
    return await asyncio.gather(*calls)


def has_several_mtp_modules(speculation: Any) -> bool:
    """Return whether a `SpeculativeConfig` drafts with several MTP modules."""
    return hasattr(speculation, "use_multi_module_mtp") and bool(speculation.use_multi_module_mtp())
