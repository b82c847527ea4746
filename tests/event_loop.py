"""Runs a scenario on uvloop, as peers run, and lets no callback fail unheard."""

import asyncio
from collections.abc import Awaitable, Callable

import uvloop

LIMIT_S = 300
"""How long a scenario may wait for one thing; it may take twice as long."""


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run it to its end, in time and without an error in any callback."""

    async def limited() -> None:
        errors: list[dict] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with asyncio.timeout(2 * LIMIT_S):
            await scenario()
        assert errors == []

    uvloop.run(limited())
