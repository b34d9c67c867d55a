"""The System One adapter against `sparrow-decider serve`, a server that nobody here wrote."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from classifier.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.classifier import Classifier
from classifier.errors import ModelUnavailable, RequestRejected
from classifier.models.systemone import Service, SystemOne
from classifier.questions import Boolean, Choice, Question, Score
from classifier.values import State

QUESTIONS: dict[str, Question] = {
    "is it about money?": Boolean("Is the message about money?", true="It names a payment"),
    "route": Choice({"billing": "Invoices and payments", "technical": "Something is broken", "other": None}),
    "urgency": Score(["It can wait", "This week", "Today"], "How urgent is it?"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[psutil.Popen]:
    command = [sys.executable, "-m", "sparrow_decider.cli", "serve", "--port", "0"]
    process = psutil.Popen(command, stderr=subprocess.DEVNULL)
    yield process
    if process.is_running():
        process.kill()
    process.wait()


@pytest.fixture(scope="module")
async def url(server: psutil.Popen) -> str:
    """Its address, once it listens; it prints the port it was asked for, not the one it got."""
    async with asyncio.timeout(60):
        while True:
            assert server.is_running()
            for connection in server.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    return f"http://127.0.0.1:{connection.laddr.port}"
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "state", ["I was charged twice. Please help today!", "", {"subject": "Refund?"}, ["a"]]
)
async def test_every_type_of_question_is_answered_and_the_answers_are_consistent(
    url: str, state: State
) -> None:
    model = SystemOne(base_url=url)
    result = await Classifier("test", model, QUESTIONS).evaluate(state)
    await model.aclose()
    kinds = [type(result.answers[name]) for name in QUESTIONS]
    assert kinds == [BooleanAnswer, ChoiceAnswer, ScoreAnswer]
    assert result.response.model.startswith("sparrow")
    assert result.provider_metadata.keys() == {"latency_ms"}


async def test_many_at_once_give_what_one_by_one_gives(url: str) -> None:
    model = SystemOne(base_url=url)
    classifier = Classifier("test", model, QUESTIONS)
    states = [f"message number {number}" for number in range(20)]
    alone = [(await classifier.evaluate(state)).answers for state in states]
    together = await asyncio.gather(*(classifier.evaluate(state) for state in states))
    await model.aclose()
    assert [dict(result.answers) for result in together] == [dict(answers) for answers in alone]


async def test_what_it_does_not_take_is_a_rejected_request(url: str) -> None:
    alone: dict[str, Question] = {"q": Choice({"only": None})}
    elsewhere = Service(path="/v1/evaluate")
    for model, questions in [
        (SystemOne(base_url=url), alone),
        (SystemOne("m", service=elsewhere, base_url=url), QUESTIONS),
    ]:
        with pytest.raises(RequestRejected):
            await Classifier("test", model, questions).evaluate("state")
        await model.aclose()


async def test_a_server_that_dies_is_an_unavailable_model(url: str, server: psutil.Popen) -> None:
    model = SystemOne(base_url=url)
    classifier = Classifier("test", model, QUESTIONS)
    await classifier.evaluate("state")
    server.kill()
    server.wait()
    with pytest.raises(ModelUnavailable):
        await classifier.evaluate("state")
    await model.aclose()
