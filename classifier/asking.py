"""Processors in plain asyncio, over a store of decisions: no Temporal. Pure.

    run = Run.here("message-17", at=received_at)
    verdict = await run_messages([safety], messages, phase="input", run=run, ports=ports_for(store, run))

A model is asked once; what fails is decided by the error strategy. With the same key and time a repeated run
finds what the first one recorded.
"""

from __future__ import annotations

from functools import partial

from classifier.audit.store import DecisionStore
from classifier.ports import Call, Evaluate, Ports
from classifier.verdict import Run


def ports_for(store: DecisionStore, run: Run, evaluate: Evaluate = Call.evaluate) -> Ports:
    """Ports that record in `store`, and look there for what an earlier run of the same key and time recorded.

    Args:
        store: Where decisions are kept.
        run: The run they are for, with the time that it takes.
        evaluate: How classifiers are asked; once, where left out.
    """
    return Ports(store.record, evaluate, partial(store.find, run.coordinates.tenant, run.decided_at))
