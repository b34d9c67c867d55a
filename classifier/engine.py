"""A chain of processors over messages. Pure: plain asyncio, activities and tests all call this.

Processors run in list order, each over the messages that those before it let through, one message after
another. An abort ends the run; what is behind it gets no decision.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from classifier.decision import Decision
from classifier.judging import Desk, to_its_end
from classifier.messages import Message
from classifier.ports import Ports
from classifier.processor import ClassifierProcessor
from classifier.sharing import Group, grouped
from classifier.verdict import Judgement, Run, Verdict


async def run_messages(
    processors: Sequence[ClassifierProcessor[Any]],
    messages: Sequence[Message],
    *,
    phase: Literal["input", "output"],
    run: Run,
    ports: Ports,
) -> Verdict:
    """What the processors make of the messages.

    Args:
        processors: Ready to be asked; in list order.
        messages: In conversation order.
        phase: Which side of the model the messages are on.
        run: Where this happens and for whom.
        ports: How models and records are reached.

    Raises:
        ConfigurationError: What is declared cannot work; under every error strategy.
        PolicyError: An `on_result` raised instead of deciding.
        StoreError: A decision could not be recorded.
        AskAgain: The `evaluate` of `ports` gave up for now.
    """
    desk = Desk(processors, phase, run, ports)
    chain = _Chain(desk, tuple(messages))
    await chain.recall(processors)
    for group in grouped(processors):
        if not await chain.pass_through(Group(group)):
            break
    return chain.verdict()


class _Chain:
    """The messages on their way through the processors."""

    def __init__(self, desk: Desk, messages: tuple[Message, ...]) -> None:
        self._desk = desk
        self._messages = messages
        self._kept = list(range(len(messages)))
        self._judgements: list[Judgement] = []
        self._known: Mapping[uuid.UUID, Decision] = {}

    async def recall(self, processors: Sequence[ClassifierProcessor[Any]]) -> None:
        """Looks up what an earlier attempt of this run recorded."""
        if self._desk.ports.find is None:
            return
        ids = [self._desk.decision_id(index, each) for index in self._kept for each in processors]
        self._known = await self._desk.ports.find(ids)

    async def pass_through(self, group: Group) -> bool:
        """Whether the run goes on after these processors."""
        for member, processor in enumerate(group.members):
            for index in self._wanted(processor):
                judgement = await self._judged(group, member, index)
                if judgement is None:
                    continue
                self._judgements.append(judgement)
                if judgement.effect == "aborted":
                    return False
                if judgement.effect == "filtered":
                    self._kept.remove(index)
        return True

    def verdict(self) -> Verdict:
        """What came of it."""
        return Verdict(tuple(self._judgements), self._messages)

    def _wanted(self, processor: ClassifierProcessor[Any]) -> Sequence[int]:
        return self._kept[-1:] if processor.last_message_only else tuple(self._kept)

    async def _judged(self, group: Group, member: int, index: int) -> Judgement | None:
        message = self._messages[index]
        processor = group.members[member]
        prepared = processor.prepare(message.text)
        if prepared.blank:
            return None
        known = self._known.get(self._desk.decision_id(index, processor))
        if known is not None:
            await self._desk.tell(known)
            return self._desk.judgement(known, index, message.id)
        asked = await self._desk.ask(
            group, member, prepared, index, others=self._others(group, member, index), message=message
        )
        decision = await to_its_end(self._desk.settle(asked))
        return None if decision is None else self._desk.judgement(decision, index, message.id)

    def _others(self, group: Group, member: int, index: int) -> Sequence[int]:
        """Later members of the group that will most likely judge this message too."""
        return [
            later
            for later in range(member + 1, len(group.members))
            if index in self._wanted(group.members[later])
            and self._desk.decision_id(index, group.members[later]) not in self._known
        ]
