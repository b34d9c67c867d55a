"""The contract of a ClassifierProcessor, row by row, over a model's stream in a thread on a real server.

Parts that are not text are left to the stream guard's own run of the table.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from temporalio.client import Client

from tests.agents.through import Through, through_threads
from tests.classifier.conformance import Case
from tests.classifier.conformance_rows import ROWS

IDS_OF_THE_THREAD = {"a stream carries no message id"}
"""A thread always has an id, so nothing falls back to the request context's."""


def has_only_text(case: Case) -> bool:
    return all(isinstance(part, str) for part in case.setup([]).stream)


EVERY = [
    pytest.param(case, id=case.name)
    for case in ROWS
    if "stream" in case.forms and has_only_text(case) and case.says not in IDS_OF_THE_THREAD
]


@pytest.fixture(scope="module")
async def through(client: Client) -> AsyncGenerator[Through]:
    async with through_threads(client) as runner:
        yield runner


@pytest.mark.parametrize("case", EVERY)
async def test_conformance(through: Through, case: Case) -> None:
    await case.hold(through, "stream")
