"""Reading and writing what decision services exchange, strictly. Pure; must not import httpx or aiohttp.

    encode_json(value) -> bytes                  ASCII, so that text with lone surrogates still travels
    decode_json(body) -> JSON                    ValueError on NaN, repeated keys, bytes that are not UTF-8
    read_object / read_list / read_text / read_number / read_optional_number(value, where)
                                                 InvalidAnswer(f"{where} is not …") on anything else
    read_labels(value, where), read_levels(value, where, levels)
                                                 a distribution over options, or over "0" … "n-1"
    read_usage(value, input_key, output_key)     (Usage, warnings); faults in it never cost an answer
    match_ids(asked, answered)                   InvalidAnswer with missing and extra ids
    identifier(value), short_text(value)         what a service sent, if it is safe to keep; else None
    Limits, check_limits(request, limits, service)   before any I/O

A string is never a number or a boolean, a boolean never a number. Messages name the place, not the content.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from classifier.errors import ConfigurationError, InputTooLarge, InvalidAnswer, RequestRejected
from classifier.models.protocol import DecisionRequest
from classifier.questions import Choice, Question, Score
from classifier.result import Usage
from classifier.values import JSON

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_SHORT_TEXT = 200
_LISTED_IDS = 5
_NOT_JSON = "the body is not JSON"


def encode_json(value: JSON) -> bytes:
    """`value` as compact ASCII JSON; characters without an encoding of their own become escapes."""
    return _ENCODER.encode(value).encode("ascii")


def decode_json(body: bytes) -> JSON:
    """Reads JSON by the letter.

    Raises:
        ValueError: Not UTF-8, not JSON, a number that is not finite, a repeated key, or nesting without end;
            its message and its context hold nothing of the body.
    """
    try:
        return cast("JSON", _DECODER.decode(body.decode("utf-8")))
    except (ValueError, RecursionError):
        pass
    raise ValueError(_NOT_JSON)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError(_NOT_JSON)
    return read


def _constant(token: str) -> NoReturn:
    raise ValueError(token)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(_NOT_JSON)
    return value


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def read_object(value: object, where: str) -> Mapping[str, Any]:
    """`value` as an object."""
    if not isinstance(value, dict):
        raise InvalidAnswer(f"{where} is not an object")
    return cast("dict[str, Any]", value)


def read_list(value: object, where: str) -> Sequence[Any]:
    """`value` as a list."""
    if not isinstance(value, list):
        raise InvalidAnswer(f"{where} is not a list")
    return cast("Sequence[Any]", value)


def read_text(value: object, where: str) -> str:
    """`value` as text."""
    if not isinstance(value, str):
        raise InvalidAnswer(f"{where} is not text")
    return value


def read_number(value: object, where: str) -> float:
    """`value` as a finite number; whether it is in range is for the validation to say."""
    number = _number(value)
    if number is None:
        raise InvalidAnswer(f"{where} is not a number")
    return number


def read_optional_number(value: object, where: str) -> float | None:
    """`value` as a finite number, or None where it is null or absent."""
    return None if value is None else read_number(value, where)


def read_labels(value: object, where: str) -> dict[str, float] | None:
    """A distribution over options by name; None where it is null or absent."""
    if value is None:
        return None
    return {label: read_number(number, where) for label, number in read_object(value, where).items()}


def read_levels(value: object, where: str, levels: int) -> tuple[float, ...] | None:
    """A distribution keyed "0" to `levels` - 1, in order; None where it is null or absent."""
    if value is None:
        return None
    entries = read_object(value, where)
    check_level_keys(entries, where, levels)
    return tuple(read_number(entries[str(level)], where) for level in range(levels))


def check_level_keys(entries: Mapping[str, object], where: str, levels: int) -> None:
    """Refuses a map over levels that counts from one, leaves a level out, or adds one."""
    if len(entries) != levels or any(str(level) not in entries for level in range(levels)):
        raise InvalidAnswer(f"{where} is not keyed 0 to {levels - 1}")


def read_usage(
    value: object, input_key: str = "input_tokens", output_key: str = "output_tokens"
) -> tuple[Usage, tuple[str, ...]]:
    """Token counts and cost; what cannot be read is None, and a warning where it was there."""
    if value is None:
        return Usage(), ()
    entries = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    tokens = [read_count(entries.get(key)) for key in (input_key, output_key)]
    cost = _number(entries.get("cost"))
    usage = Usage(tokens[0], tokens[1], cost if cost is not None and cost >= 0 else None)
    read = (tokens[0], tokens[1], usage.cost)
    present = (entries.get(input_key), entries.get(output_key), entries.get("cost"))
    lost = not isinstance(value, dict) or any(
        given is not None and kept is None for given, kept in zip(present, read, strict=True)
    )
    return usage, ("usage could not be read completely",) if lost else ()


def read_count(value: object) -> int | None:
    """`value` as a whole number that is not negative; None for anything else."""
    number = _number(value)
    return int(number) if number is not None and number >= 0 and number.is_integer() else None


def match_ids(asked: Iterable[str], answered: Iterable[str]) -> None:
    """Checks that exactly the asked ids are answered.

    Raises:
        InvalidAnswer: With `missing` and `extra`; of the extra ids the message shows only plain ones.
    """
    asked_ids, answered_ids = dict.fromkeys(asked), dict.fromkeys(answered)
    if asked_ids.keys() == answered_ids.keys():
        return
    missing = tuple(name for name in asked_ids if name not in answered_ids)
    extra = tuple(identifier(name) or "(unprintable)" for name in answered_ids if name not in asked_ids)
    listed = f"missing={_listed(missing)} extra={_listed(extra)}"
    raise InvalidAnswer(f"answers do not match the questions: {listed}", missing=missing, extra=extra)


def identifier(value: object) -> str | None:
    """`value` if it looks like an identifier or a whole number, else None: a service's prose is not kept."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
        return str(value)
    return value if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None


def short_text(value: object) -> str | None:
    """`value` if it is short printable text, such as a model's name or a response's id; else None."""
    if isinstance(value, str) and 0 < len(value) <= _SHORT_TEXT and value.isprintable():
        return value
    return None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a service takes in one request; None means no limit is known.

    Attributes:
        questions: Most questions in one request.
        options: Fewest and most options of a choice.
        levels: Fewest and most levels of a score.
        state_characters: Longest state, in characters (code points) of its JSON where it is not text.
    """

    questions: int | None = None
    options: tuple[int, int | None] = (1, None)
    levels: tuple[int, int | None] = (2, None)
    state_characters: int | None = None


NO_LIMITS = Limits()


def check_limits(request: DecisionRequest, limits: Limits, service: str) -> None:
    """Refuses a request that `service` cannot take.

    Raises:
        InputTooLarge: Over a limit; names it.
        RequestRejected: A question has too few options or levels.
    """
    count = len(request.questions)
    if limits.questions is not None and count > limits.questions:
        raise InputTooLarge(f"{service} takes {limits.questions} questions in one request, not {count}")
    for name, question in request.questions.items():
        _check_question(name, question, limits, service)
    if limits.state_characters is None:
        return
    state = request.state
    length = len(state) if isinstance(state, str) else len(json.dumps(state, ensure_ascii=False))
    if length > limits.state_characters:
        raise InputTooLarge(f"{service} takes a state of {limits.state_characters} characters, not {length}")


def with_options(body: Mapping[str, JSON], options: Mapping[str, JSON], service: str) -> dict[str, JSON]:
    """`body` with the caller's `provider_options` as further fields.

    Raises:
        ConfigurationError: An option has the name of a field that is not the caller's to set.
    """
    taken = sorted(body.keys() & options.keys())
    if taken:
        raise ConfigurationError(f"provider_options of {service} cannot set {', '.join(taken)}")
    return {**body, **options}


def _check_question(name: str, question: Question, limits: Limits, service: str) -> None:
    match question:
        case Choice():
            count, (fewest, most), what = len(question.options), limits.options, "options"
        case Score():
            count, (fewest, most), what = len(question.levels), limits.levels, "levels"
        case _:
            return
    if most is not None and count > most:
        raise InputTooLarge(f"{service} takes at most {most} {what}; question {name!r} has {count}")
    if count < fewest:
        raise RequestRejected(f"{service} takes at least {fewest} {what}; question {name!r} has {count}")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _listed(ids: tuple[str, ...]) -> str:
    if not ids:
        return "-"
    more = len(ids) - _LISTED_IDS
    return ",".join(ids[:_LISTED_IDS]) + (f" and {more} more" if more > 0 else "")
