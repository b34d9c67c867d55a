"""Typed questions: what may be asked about a state. Pure.

Two ways to declare a set of them, with the same meaning:

    questions = {"unsafe": Boolean("Is the message unsafe?")}

    class SafetyQuestions(Questions):
        unsafe = Boolean("Is the message unsafe?")
        topic: Choice[Literal["billing", "other"]] = Choice({"billing": "Invoices", "other": None})

An instance of the class holds the answers, so a type checker knows `answers.topic` as
`ChoiceAnswer[Literal["billing", "other"]] | Refusal`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from classifier.answers import Answer, Answers, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import QuestionError
from classifier.values import JSON, Text, digest, json_copy

QuestionType: TypeAlias = Literal["boolean", "choice", "score"]
L = TypeVar("L", bound=str)
Label = TypeVar("Label", bool, str, float)


@dataclass(frozen=True)  # no slots: with them Python 3.11 cannot call Example[…](…)
class Example(Generic[Label]):
    """A text with the answer a person gave: what the local model learns a threshold from.

    Attributes:
        text: The message.
        label: True or false, an option, or a position on the levels.
    """

    text: str
    label: Label


@dataclass(frozen=True, slots=True, init=False)
class Boolean:
    """A yes/no question; its answer is P(true).

    Args:
        instructions: The question; where absent, the question's id is sent.
        true: When the answer is yes.
        false: When the answer is no.
        examples: Labelled texts, for models that learn from them.
    """

    kind: ClassVar[Literal["boolean"]] = "boolean"
    instructions: Text | None
    true: Text | None
    false: Text | None
    examples: tuple[Example[bool], ...]

    def __init__(
        self,
        instructions: Text | None = None,
        *,
        true: Text | None = None,
        false: Text | None = None,
        examples: Iterable[Example[bool]] = (),
    ) -> None:
        _set(self, instructions=_text(instructions, "instructions"))
        _set(self, true=_text(true, "true"), false=_text(false, "false"), examples=tuple(examples))

    @overload
    def __get__(self, answers: None, owner: type, /) -> Self: ...
    @overload
    def __get__(self, answers: Answers, owner: type, /) -> BooleanAnswer | Refusal: ...
    def __get__(self, answers: Answers | None, owner: type, /) -> Self | BooleanAnswer | Refusal:
        """The question on the class, the answer on an instance."""
        return self if answers is None else answers.boolean(_name_of(self, owner))


@dataclass(frozen=True, init=False)  # no slots: with them Python 3.11 cannot call Choice[…](…)
class Choice(Generic[L]):
    """One of several named options.

    Args:
        options: Option to description, in the order they are shown; a description may be None.
        instructions: The question; where absent, the question's id is sent.
        examples: Labelled texts, for models that learn from them.
    """

    kind: ClassVar[Literal["choice"]] = "choice"
    options: Mapping[L, Text | None]
    instructions: Text | None
    examples: tuple[Example[str], ...]

    def __init__(
        self,
        options: Mapping[L, Text | None],
        instructions: Text | None = None,
        *,
        examples: Iterable[Example[str]] = (),
    ) -> None:
        described = {label: _text(text, f"option {label!r}") for label, text in options.items()}
        _set(self, options=described, instructions=_text(instructions, "instructions"))
        _set(self, examples=tuple(examples))

    @overload
    def __get__(self, answers: None, owner: type, /) -> Self: ...
    @overload
    def __get__(self, answers: Answers, owner: type, /) -> ChoiceAnswer[L] | Refusal: ...
    def __get__(self, answers: Answers | None, owner: type, /) -> Self | ChoiceAnswer[L] | Refusal:
        """The question on the class, the answer on an instance."""
        if answers is None:
            return self
        return cast("ChoiceAnswer[L] | Refusal", answers.choice(_name_of(self, owner)))


@dataclass(frozen=True, slots=True, init=False)
class Score:
    """A position on ordered levels; its answer is the mean, 0 for the first to n - 1 for the last.

    Args:
        levels: Descriptions from lowest to highest, at least two; a description may be None.
        instructions: The question; where absent, the question's id is sent.
        examples: Labelled texts, for models that learn from them.
    """

    kind: ClassVar[Literal["score"]] = "score"
    levels: tuple[Text | None, ...]
    instructions: Text | None
    examples: tuple[Example[float], ...]

    def __init__(
        self,
        levels: Sequence[Text | None],
        instructions: Text | None = None,
        *,
        examples: Iterable[Example[float]] = (),
    ) -> None:
        if not isinstance(cast("object", levels), list | tuple):  # text would be a level per letter
            raise QuestionError("(unnamed)", "levels must be a list")
        described = tuple(_text(text, f"level {index}") for index, text in enumerate(levels))
        _set(self, levels=described, instructions=_text(instructions, "instructions"))
        _set(self, examples=tuple(examples))

    @overload
    def __get__(self, answers: None, owner: type, /) -> Self: ...
    @overload
    def __get__(self, answers: Answers, owner: type, /) -> ScoreAnswer | Refusal: ...
    def __get__(self, answers: Answers | None, owner: type, /) -> Self | ScoreAnswer | Refusal:
        """The question on the class, the answer on an instance."""
        return self if answers is None else answers.score(_name_of(self, owner))


Question: TypeAlias = Boolean | Choice[Any] | Score


class Questions(Answers):
    """Base of a typed question set: the class declares questions, an instance holds their answers.

    Raises:
        QuestionError: When the subclass is created: a malformed question, a name that `Answers` uses, or
            a `Literal` that differs from the declared options.
    """

    __slots__ = ()
    _questions: ClassVar[Mapping[str, Question]] = {}
    _names: ClassVar[Mapping[int, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: value for name, value in vars(cls).items() if _is_question(value)}
        for name in own:
            if hasattr(Answers, name):
                raise QuestionError(
                    name, f"the name is used by every answer set; rename it in {cls.__name__}"
                )
        inherited: dict[str, Question] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= vars(base).get("_questions", {})
        cls._questions = {**inherited, **own}
        cls._names = {id(question): name for name, question in cls._questions.items()}
        check_questions(cls._questions)
        _check_distinct(cls._questions)
        _check_literals(cls, own)


def questions_of(declared: type[Questions] | Mapping[str, Question]) -> Mapping[str, Question]:
    """The questions of either way of declaring, by id."""
    return declared._questions if isinstance(declared, type) else dict(declared)  # noqa: SLF001 - same module


def check_questions(questions: Mapping[str, Question]) -> None:
    """Checks a set of questions before anything is sent.

    Raises:
        QuestionError: The set is empty, or names the first malformed question and its fault.
    """
    if not questions:
        raise QuestionError("(none)", "at least one question is needed")
    for name, question in cast("Mapping[Any, Any]", questions).items():
        if not isinstance(name, str) or not name.strip():
            raise QuestionError(str(name), "the id must be text that is not blank")
        fault = _fault(question)
        if fault is not None:
            raise QuestionError(name, fault)


def _fault(question: object) -> str | None:
    match question:
        case Choice(options=options):
            labels = cast("Iterable[object]", options)
            if not options:
                return "a choice needs at least one option"
            if any(not isinstance(label, str) or not label for label in labels):
                return "every option must be text that is not empty"
            foreign = [ex.label for ex in question.examples if ex.label not in list(options)]
            return f"an example is labelled {foreign[0]!r}, which is not an option" if foreign else None
        case Score(levels=levels):
            if len(levels) < 2:  # noqa: PLR2004 - a scale has two ends
                return "a score needs at least two levels"
            outside = [ex.label for ex in question.examples if not _is_position(ex.label, len(levels))]
            return (
                f"an example is labelled {outside[0]!r}, outside 0 to {len(levels) - 1}" if outside else None
            )
        case Boolean():
            wrong = [ex for ex in question.examples if not isinstance(cast("object", ex.label), bool)]
            return "an example is labelled with something else than true or false" if wrong else None
        case _:
            return f"a {type(question).__name__} is not a Boolean, Choice or Score"


def _is_position(label: object, levels: int) -> bool:
    return isinstance(label, int | float) and not isinstance(label, bool) and 0 <= label <= levels - 1


def question_to_json(question: Question) -> dict[str, JSON]:
    """A question as JSON: type, instructions, criteria and examples; stable, since hashes are made of it."""
    body: dict[str, JSON] = {"type": question.kind, "instructions": question.instructions}
    match question:
        case Boolean():
            body["criteria"] = {"true": question.true, "false": question.false}
        case Choice():
            body["criteria"] = [[label, text] for label, text in question.options.items()]
        case Score():
            body["criteria"] = list(question.levels)
    if question.examples:
        body["examples"] = [[example.text, example.label] for example in question.examples]
    return body


def question_set_hash(questions: Mapping[str, Question]) -> str:
    """SHA-256 over the whole set; another word, option or example makes another hash."""
    return digest({name: question_to_json(question) for name, question in questions.items()})


def instructions_of(name: str, question: Question) -> Text:
    """The instructions to send: the declared ones, else the question's id."""
    return name if question.instructions is None else question.instructions


def _text(value: Text | None, what: str) -> Text | None:
    try:
        copied = json_copy(value, what)
    except ValueError as error:
        raise QuestionError("(unnamed)", str(error)) from error
    if not isinstance(copied, str | list | dict | None):
        raise QuestionError("(unnamed)", f"{what} must be text, or a JSON array or object")
    return cast("Text | None", copied)


def _is_question(value: object) -> TypeGuard[Question]:
    return isinstance(value, Boolean | Choice | Score)


def _set(question: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(question, name, value)


def _name_of(question: Question, owner: type) -> str:
    return cast("type[Questions]", owner)._names[id(question)]  # noqa: SLF001 - same module


def _check_distinct(questions: Mapping[str, Question]) -> None:
    names: dict[int, str] = {}
    for name, question in questions.items():
        earlier = names.setdefault(id(question), name)
        if earlier != name:  # an answer is found by its question, so it would be the answer to the other
            raise QuestionError(name, f"it is the same object as {earlier!r}; declare it again")


def _check_literals(cls: type[Questions], own: Mapping[str, Question]) -> None:
    annotated = set(own) & set(inspect.get_annotations(cls))
    hints = get_type_hints(cls) if annotated else {}
    for name in annotated:
        question = own[name]
        if not isinstance(question, Choice):
            continue
        arguments = get_args(hints[name])
        if not arguments or get_origin(arguments[0]) is not Literal:
            continue
        typed, declared = set(get_args(arguments[0])), set(question.options)
        if typed != declared:
            difference = ", ".join(sorted(map(repr, typed ^ declared)))
            raise QuestionError(name, f"its Literal and its options differ in {difference}")


def typed_answers(
    declared: type[Questions] | Mapping[str, Question], answers: Mapping[str, Answer]
) -> Answers:
    """The answers as an instance of the declared class, or as plain `Answers` for a dictionary."""
    return declared(answers) if isinstance(declared, type) else Answers(answers)
