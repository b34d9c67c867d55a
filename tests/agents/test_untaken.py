"""A message that Temporal does not take."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.agent_client import Thread


async def test_an_error_reaches_the_sender_and_nobodys_log(client: Client) -> None:
    logged: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: logged.append(context))
    no_queue = ""
    try:
        with pytest.raises(RPCError):
            await Thread(client, no_queue, "helper", "t").send("hello", message="m1")
        gc.collect()
    finally:
        loop.set_exception_handler(before)
    assert logged == []
