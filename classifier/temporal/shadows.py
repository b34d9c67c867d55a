"""Shadows beside the decisions of a run: started, waited for, taken along. Workflow side; sandbox-safe.

A shadow begins when the live decision is there, so it never delays it, and whatever happens to it is its own
affair. A run ends when its shadows have, which their budgets see to; one that is stopped or fails stops them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

from classifier.temporal.messages import DecideRequest, DecideResult

_SHADOWS = "_classifier_shadows"


def shadow_request(request: DecideRequest, result: DecideResult) -> DecideRequest:
    """Asks the shadow of the playbook that `request` named about the same states."""
    return replace(
        request,
        playbook=None,
        shadow=request.playbook,
        answers=[each.answers for each in result.decisions],
        maybe_decided_at=None,
        look_first=False,
    )


def begin(shadow: Coroutine[Any, Any, object]) -> None:
    """Lets a shadow run beside the run."""
    _shadows().append(asyncio.create_task(_by_itself(shadow)))


async def shadows_end() -> None:
    """Waits until every shadow of this run has ended; the plugin calls it before a run closes.

    Raises:
        asyncio.CancelledError: The run was cancelled meanwhile, and its shadows with it.
    """
    try:
        await _all_ended()
    except asyncio.CancelledError:
        await stop_shadows()
        raise


async def stop_shadows() -> None:
    """Stops every shadow of this run, and waits until they have."""
    for shadow in _shadows():
        shadow.cancel()
    await _all_ended()


async def _all_ended() -> None:
    if _shadows():
        await workflow.wait(_shadows())


async def _by_itself(shadow: Coroutine[Any, Any, object]) -> None:
    """Where even its failure cannot be put on record, a log has to do: the live run goes on as it was."""
    try:
        await shadow
    except FailureError as error:
        kind = getattr(error, "type", None) or type(error).__name__
        workflow.logger.warning("a shadow decision is not on record", extra={"error": kind})


def _shadows() -> list[asyncio.Task[None]]:
    instance: Any = workflow.instance()
    if not hasattr(instance, _SHADOWS):
        setattr(instance, _SHADOWS, [])
    shadows: list[asyncio.Task[None]] = getattr(instance, _SHADOWS)
    return shadows
