"""The service keeps to its OpenAPI document, whatever is sent."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from service.http_events import BATCH, STRUCTURED
from tests import late
from tests.service.house import KIM, TOKEN, House, bearer

if TYPE_CHECKING:
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi import checks

EXAMPLES = 15
NOT_HELD = (
    "positive_data_acceptance",  # a good event may still say nothing that could be decided on
    "negative_data_rejection",  # JSON that the schema does not list may still be an event
    "ignored_auth",  # it keeps the header it means to leave out; test_events.py does without
)


@pytest.fixture(scope="module", autouse=True)
def framework() -> None:
    late.imports(globals())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["positive", "negative"])
async def test_whatever_is_sent_is_answered_as_the_document_says(door: House, kind: str) -> None:
    """Our loop serves while the calls come from a thread."""
    mode = GenerationMode(kind)
    schema: Any = await asyncio.to_thread(schemathesis.openapi.from_url, f"{door.url}/openapi.json")
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 9
    for operation in operations:
        if mode == GenerationMode.POSITIVE or operation.method.upper() == "POST":
            await asyncio.to_thread(_try, operation, mode)


def _try(operation: Any, mode: GenerationMode) -> None:
    token = KIM if operation.path.startswith("/reviews") else TOKEN
    headers = {**bearer(token), "prefer": "wait=1"}  # nobody works here, so each waits to the end

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        database=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        case.call_and_validate(headers=headers, excluded_checks=[vars(checks)[name] for name in NOT_HELD])

    holds()


async def test_the_document_describes_the_events_that_are_taken(door: House) -> None:
    document = (await door.http.get(f"{door.url}/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    event = document["components"]["schemas"]["Event"]
    jsonschema.validate(door.event("e1"), event)
    content = document["paths"]["/events"]["post"]["requestBody"]["content"]
    assert set(content) == {STRUCTURED, BATCH}
    names = document["paths"]["/webhooks/{name}"]["post"]["parameters"][0]["schema"]["enum"]
    assert names == ["github", "tracker"]
    assert "secret" not in json.dumps(document).lower()
