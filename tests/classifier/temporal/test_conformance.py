"""The contract of a ClassifierProcessor, row by row, through an activity of a workflow on a real server."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from temporalio.client import Client

from tests.classifier.conformance import Case, Form
from tests.classifier.conformance_rows import ROWS
from tests.classifier.temporal.through import Through, through_workflows

EVERY = [
    pytest.param(case, form, id=f"{case.name}-{form}")
    for case in ROWS
    for form in case.forms
    if form != "stream"
]


@pytest.fixture(scope="module")
async def through(client: Client) -> AsyncGenerator[Through]:
    async with through_workflows(client) as runner:
        yield runner


@pytest.mark.parametrize(("case", "form"), EVERY)
async def test_conformance(through: Through, case: Case, form: Form) -> None:
    await case.hold(through, form)
