"""The System One wire format: questions to JSON, and answers from it, by the letter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from classifier.answers import Answer, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
from classifier.errors import InvalidAnswer
from classifier.models.wire import (
    check_level_keys,
    identifier,
    match_ids,
    read_count,
    read_labels,
    read_levels,
    read_number,
    read_object,
    read_optional_number,
    read_text,
)
from classifier.questions import Boolean, Choice, Question, Score, instructions_of
from classifier.result import Rounding, Truncation
from classifier.values import JSON, State, as_text

_TYPES = {"boolean": "noul", "choice": "choice", "score": "score"}
_MOST_DECIMALS = 4
_SINGLE_PRECISION = 1e-7
_KNOWN_FIELDS = frozenset({"model", "answers", "usage", "id", "error"})


def encode_questions(questions: Mapping[str, Question], *, both_sides: bool = False) -> dict[str, JSON]:
    """Questions as the format has them.

    Args:
        questions: By id.
        both_sides: Where one side of a boolean is described, send the other too, as "yes" or "no".
    """
    return {name: _encode(name, question, both_sides=both_sides) for name, question in questions.items()}


def _encode(name: str, question: Question, *, both_sides: bool) -> dict[str, JSON]:
    body: dict[str, JSON] = {"type": _TYPES[question.kind], "instructions": instructions_of(name, question)}
    match question:
        case Boolean():
            criteria = {"true": question.true, "false": question.false}
            described = {side: text for side, text in criteria.items() if text is not None}
            if described:
                body["criteria"] = {"true": "yes", "false": "no", **described} if both_sides else described
        case Choice():
            body["criteria"] = dict(question.options)
        case Score():
            levels = enumerate(question.levels)
            body["criteria"] = [str(level) if text is None else text for level, text in levels]
    return body


def decode_answers(
    questions: Mapping[str, Question], answers: object, *, omission_is_refusal: bool = False
) -> dict[str, Answer]:
    """The answers to exactly `questions`.

    Args:
        questions: By id.
        answers: The `answers` of a response.
        omission_is_refusal: Whether an asked id that is absent was refused; else it is missing.

    Raises:
        InvalidAnswer: Another type, a missing or extra id, text or a boolean for a number, a distribution
            that is not one.
    """
    entries = read_object(answers, "answers")
    omitted = [name for name in questions if name not in entries] if omission_is_refusal else []
    match_ids(questions, [*entries, *omitted])
    return {
        name: decode_answer(name, question, entries[name]) if name in entries else Refusal("omitted")
        for name, question in questions.items()
    }


def decode_answer(name: str, question: Question, entry: object) -> Answer:
    """One answer; errors as for `decode_answers`."""
    where = f"the answer to {name!r}"
    fields = read_object(entry, where)
    kind = fields.get("type")
    if kind == "refusal":
        return Refusal("answer")
    if kind != _TYPES[question.kind]:
        raise InvalidAnswer(f"{where} is not of type {_TYPES[question.kind]}")
    confidence = read_optional_number(fields.get("confidence"), f"confidence of {where}")
    match question:
        case Boolean():
            return BooleanAnswer(read_number(fields.get("noul"), f"noul of {where}"), None, confidence)
        case Choice():
            choice = read_text(fields.get("choice"), f"choice of {where}")
            return ChoiceAnswer(choice, read_labels(fields.get("probabilities"), _spread(where)), confidence)
        case Score():
            return _decode_score(fields, question, where, confidence)


def _decode_score(
    fields: Mapping[str, Any], question: Score, where: str, confidence: float | None
) -> ScoreAnswer:
    score = read_number(fields.get("score"), f"score of {where}")
    levels = len(question.levels)
    legend = fields.get("legend")
    if legend is not None:  # a legend that counts from one makes the score's meaning a guess
        check_level_keys(read_object(legend, f"legend of {where}"), f"legend of {where}", levels)
    return ScoreAnswer(score, read_levels(fields.get("probabilities"), _spread(where), levels), confidence)


def _spread(where: str) -> str:
    return f"probabilities of {where}"


def precision_of(answers: Mapping[str, Answer], declared: Rounding) -> Rounding:
    """How far the numbers of a response may be off: as declared, or less where they show more decimals.

    A server that writes 0.8565113 did not round to two decimals, so its sums and means get no such slack. The
    coarsest answer counts, and nothing is held to more than four decimals, which half precision keeps.
    """
    spreads: list[Iterable[float]] = []
    scores: list[Iterable[float]] = []
    for answer in answers.values():
        match answer:
            case ChoiceAnswer(probabilities=probabilities) if probabilities is not None:
                spreads.append(probabilities.values())
            case ScoreAnswer(score=score, probabilities=probabilities) if probabilities is not None:
                spreads.append(probabilities)
                scores.append((score,))
            case _:
                pass
    return Rounding(
        _coarsest(spreads, declared.probability_decimals), _coarsest(scores, declared.score_decimals)
    )


def _coarsest(groups: Sequence[Iterable[float]], declared: int | None) -> int | None:
    if declared is None or declared >= _MOST_DECIMALS or not groups:
        return declared
    return min(_shown_decimals(group, declared) for group in groups)


def _shown_decimals(values: Iterable[float], declared: int) -> int:
    for decimals in range(declared, _MOST_DECIMALS):
        if all(abs(value - round(value, decimals)) < _SINGLE_PRECISION for value in values):
            return decimals
    return _MOST_DECIMALS


def is_blocked(body: Mapping[str, Any]) -> bool:
    """Whether the service blocked the whole input instead of answering."""
    feedback = body.get("prompt_feedback")
    if not isinstance(feedback, dict) or "answers" in body:
        return False
    return bool(cast("Mapping[str, object]", feedback).get("block_reason"))


def truncation_of(
    body: Mapping[str, Any], questions: Mapping[str, Question], state: State
) -> tuple[Truncation | None, tuple[str, ...]]:
    """What the service says it cut, and a warning for each; it counts tokens, so `sent` stays unknown."""
    warnings: list[str] = []
    tokens = read_count(body.get("state_tokens_dropped"))
    named = body.get("truncated_questions")
    cut = [name for name in questions if isinstance(named, list) and name in cast("list[object]", named)]
    if tokens:
        warnings.append(f"the service dropped {tokens} tokens of the state")
    elif body.get("truncated") is True and not cut:
        warnings.append("the service cut the state")
    truncated = bool(warnings)
    if cut:
        warnings.append(f"the service cut the questions {', '.join(cut)}")
    return Truncation(len(as_text(state)), None, "model") if truncated else None, tuple(warnings)


def metadata_of(body: Mapping[str, Any]) -> dict[str, JSON]:
    """Fields the format does not have, where they are numbers, booleans or identifiers: no prose is kept."""
    kept: dict[str, JSON] = {}
    for key, value in body.items():
        if key in _KNOWN_FIELDS or identifier(key) is None:
            continue
        if isinstance(value, bool | int | float) or identifier(value) is not None:
            kept[key] = value
    return kept
