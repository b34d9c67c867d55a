"""Our worker: `python -m tests.bench._durable_worker ADDRESS MODEL_URL DATABASE_URL`."""

from __future__ import annotations

import asyncio
import sys

from temporalio.client import Client
from temporalio.worker import Worker

from classifier.app import App
from classifier.audit.postgres import PostgresStore
from classifier.audit.schema import upgrade
from classifier.classifier import Classifier
from classifier.models.systemone import SystemOne
from classifier.policy import PolicyContext
from classifier.processor import ClassifierProcessor
from classifier.temporal.plugin import ClassifierPlugin
from tests.bench._durable_workflows import Ask, AskLocally, AskMany, Message


def abort_unsafe(answers: Message, context: PolicyContext[Message]) -> None:
    """A policy."""
    if answers.unsafe.probability_or(1.0) > 0.8:
        context.abort("unsafe")


async def main(address: str, model_url: str, database_url: str) -> None:
    """Polls until it is killed."""
    await upgrade(database_url)
    store = PostgresStore(database_url, hash_key=b"a key for benchmarks")
    messages = Classifier("messages", SystemOne("jev-1.13.0", base_url=model_url), Message)
    safety = ClassifierProcessor(classifier=messages, id="safety", on_result=abort_unsafe)
    app = App(classifiers=[messages], processors=[safety]).resolve({})
    client = await Client.connect(address)
    async with Worker(
        client,
        task_queue="ours",
        workflows=[Ask, AskLocally, AskMany],
        plugins=[ClassifierPlugin(app, store)],
    ):
        print("polls", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
