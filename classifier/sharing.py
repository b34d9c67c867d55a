"""One request for several processors that ask the same model about the same state. Pure.

The questions of all are sent together; a colliding id is renamed, with its instructions made explicit, so
the model sees what it would have seen. Each processor reads only its own answers, so an invalid answer
fails nobody else, and the usage is counted with the first that reads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from classifier.errors import InputTooLarge
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.processor import ClassifierProcessor
from classifier.questions import Question, QuestionType, instructions_of
from classifier.result import DecisionResponse, Usage
from classifier.values import digest


@dataclass(slots=True)
class _Asked:
    """An answered or failed request that some members have not read yet."""

    names: Mapping[int, Mapping[str, str]]
    milliseconds: float
    response: DecisionResponse | None = None
    error: Exception | None = None
    unread: set[int] = field(default_factory=set[int])


class Group:
    """Consecutive processors whose requests may be sent as one, for one run.

    Attributes:
        members: In list order; a member is named by its position here.
    """

    def __init__(self, members: Sequence[ClassifierProcessor[Any]]) -> None:
        self.members = tuple(members)
        self._classifiers = [member.ready() for member in members]
        self._waiting: dict[str, list[_Asked]] = defaultdict(list)
        self._together = True

    def view(self, member: int, others: Collection[int] = ()) -> MemberModel:
        """The model as `member` asks it, on behalf of `others` too."""
        return MemberModel(self, member, tuple(other for other in others if other != member))

    def model(self, member: int) -> DecisionModel:
        """The model of a member."""
        model = self._classifiers[member].model
        assert not isinstance(model, str)  # `ready` saw to it
        return model

    async def asked(self, member: int, others: Sequence[int], request: DecisionRequest) -> _Asked:
        """What was answered: to a request sent earlier for `member` as well, else to a new one."""
        state = request.state if isinstance(request.state, str) else digest(request.state)
        waiting = self._waiting.get(state, [])
        found = next((asked for asked in waiting if member in asked.unread), None)
        if found is None:
            found = await self._ask(member, others if self._together else (), request)
            waiting = self._waiting[state]
            # who asks again after a failure does so for the others too
            waiting[:] = [asked for asked in waiting if asked.error is None] + [found]
        found.unread.discard(member)
        if not found.unread:
            waiting.remove(found)
        if not waiting:
            self._waiting.pop(state, None)
        return found

    async def _ask(self, member: int, others: Sequence[int], request: DecisionRequest) -> _Asked:
        wanted = {member: request.questions} | {other: self._questions(other) for other in others}
        questions, names = merged(wanted)
        started = time.perf_counter()
        asked = _Asked(names, 0.0, unread=set(wanted))
        try:
            asked.response = await self.model(member).decide(replace(request, questions=questions))
        except InputTooLarge as error:
            if others:
                self._together = False
                return await self._ask(member, (), request)
            asked.error = error
        except Exception as error:  # noqa: BLE001 - each member raises it when it reads
            asked.error = error
        asked.milliseconds = (time.perf_counter() - started) * 1000
        return asked

    def _questions(self, member: int) -> Mapping[str, Question]:
        return self._classifiers[member].questions or {}


class MemberModel:
    """The model as one member of a group sees it; remembers what it said, for the record.

    Attributes:
        response: The member's part of the last response, also where its answers turn out invalid.
        milliseconds: How long the request took that answered it.
    """

    def __init__(self, group: Group, member: int, others: tuple[int, ...]) -> None:
        self._group = group
        self._member = member
        self._others = others
        self._model = group.model(member)
        self.response: DecisionResponse | None = None
        self.milliseconds = 0.0

    @property
    def provider(self) -> str:
        """As the model says."""
        return self._model.provider

    @property
    def name(self) -> str:
        """As the model says."""
        return self._model.name

    @property
    def question_types(self) -> frozenset[QuestionType]:
        """As the model says."""
        return self._model.question_types

    def configure(self, environ: Mapping[str, str]) -> Sequence[str]:
        """As the model does."""
        return self._model.configure(environ)

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """The member's part of the answer to a request that may be shared; errors as for the model."""
        asked = await self._group.asked(self._member, self._others, request)
        self.milliseconds = asked.milliseconds
        if asked.response is None:
            assert asked.error is not None
            raise asked.error
        self.response = _part(asked.response, asked.names, self._member)
        asked.response = replace(asked.response, usage=Usage())
        return self.response

    async def aclose(self) -> None:
        """Holds nothing of its own."""


def merged(
    wanted: Mapping[int, Mapping[str, Question]],
) -> tuple[dict[str, Question], dict[int, dict[str, str]]]:
    """All questions under ids that do not collide, and for each member the sent id of each of its own.

    The same question under the same id is asked once.
    """
    questions: dict[str, Question] = {}
    names: dict[int, dict[str, str]] = {}
    for member, own in wanted.items():
        names[member] = {}
        for name, question in own.items():
            sent = _free_name(name, question, questions)
            renamed = sent != name and question.instructions is None
            kept = replace(question, instructions=instructions_of(name, question)) if renamed else question
            questions[sent] = kept
            names[member][name] = sent
    return questions, names


def _free_name(name: str, question: Question, taken: Mapping[str, Question]) -> str:
    sent, number = name, 1
    while sent in taken and not (sent == name and taken[sent] == question):
        number += 1
        sent = f"{name}_{number}"
    return sent


def _part(
    response: DecisionResponse, names: Mapping[int, Mapping[str, str]], member: int
) -> DecisionResponse:
    """One member's answers under their own ids; what nobody asked for is left in, to be found invalid."""
    asked = {sent for own in names.values() for sent in own.values()}
    answers = {
        name: response.answers[sent] for name, sent in names[member].items() if sent in response.answers
    }
    extra = {name: answer for name, answer in response.answers.items() if name not in asked}
    return replace(response, answers={**extra, **answers})


def grouped(
    processors: Sequence[ClassifierProcessor[Any]], *, stream: bool = False
) -> list[list[ClassifierProcessor[Any]]]:
    """Consecutive processors that may share requests, together."""
    groups: list[list[ClassifierProcessor[Any]]] = []
    for processor in processors:
        if groups and _shareable(groups[-1][0], processor, stream=stream):
            groups[-1].append(processor)
        else:
            groups.append([processor])
    return groups


def _shareable(one: ClassifierProcessor[Any], other: ClassifierProcessor[Any], *, stream: bool) -> bool:
    return _request_key(one) == _request_key(other) and (not stream or _stream_key(one) == _stream_key(other))


def _request_key(processor: ClassifierProcessor[Any]) -> tuple[object, ...]:
    classifier = processor.ready()
    options = digest({**classifier.provider_options, **processor.provider_options})
    return (id(classifier.model), options, processor.max_input_length, processor.normalise)


def _stream_key(processor: ClassifierProcessor[Any]) -> tuple[object, ...]:
    return (processor.chunk_window, processor.hold_back, processor.coalesce, processor.max_in_flight)
