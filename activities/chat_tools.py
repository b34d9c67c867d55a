"""Functions that agents use as tools, as the activities they are on this worker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from classifier.agent import Tool, ToolFunction
from classifier.app import ResolvedApp

_BEAT = 0.4


def tool_activities(app: ResolvedApp) -> Sequence[Callable[..., Any]]:
    """An activity for every tool of the app that is a function."""
    tools: dict[str, Tool] = {}
    for name in app.agents:
        tools |= {tool.id: tool for tool in app.agents[name].tools if isinstance(tool, Tool)}
    return [_activity(tool) for tool in tools.values() if not isinstance(tool.activity, str)]


def idempotency_key() -> str:
    """What all attempts of the running tool share; give it to whoever must not do a thing twice."""
    info = activity.info()
    return f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"


def _activity(tool: Tool) -> Callable[..., Any]:
    function = tool.activity
    assert not isinstance(function, str)

    async def run(arguments: dict[str, Any]) -> Any:
        beats = asyncio.create_task(_beat())
        try:
            return await _called(function, arguments)
        finally:
            beats.cancel()

    return activity.defn(name=tool.activity_name)(run)


async def _called(function: ToolFunction, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(arguments)
    returned: Any = await asyncio.to_thread(function, arguments)
    return await returned if inspect.isawaitable(returned) else returned


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(_BEAT)
