"""Questions from YAML or JSON: a map of ids to questions, checked field by field. Pure; opens no file.

    unsafe:
      type: boolean
      instructions: Is the message unsafe?
      true: threats, self-harm             # optional: when the answer is yes
      false: everyday talk                 # optional: when it is no
    topic:
      type: choice
      instructions: What is it about?
      options:                             # or a list of names
        billing: Invoices and payments
        other: null
    mood:
      type: score
      levels: [angry, neutral, happy]      # from lowest to highest; null is a level without a description
      examples:                            # optional, for every type: what the local model learns from
        - {text: "Thank you so much!", label: 2}

`instructions` may be left out, then the id is asked. Keys are always text, so that `true` and `yes` name what
they say. An unknown or repeated key is a fault: it would be a question that nobody meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, cast

import yaml

from classifier.errors import ConfigurationError, QuestionError
from classifier.questions import Boolean, Choice, Example, Question, Score, check_questions
from classifier.values import Text

Format: TypeAlias = Literal["yaml", "json"]
Fields: TypeAlias = Mapping[str, Any]

_FIELDS = {
    "boolean": {"type", "instructions", "true", "false", "examples"},
    "choice": {"type", "instructions", "options", "examples"},
    "score": {"type", "instructions", "levels", "examples"},
}
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?", re.ASCII)


class _FaultError(Exception):
    """What is wrong with one question."""


def parse_questions(
    text: str,
    *,
    source: str = "questions",
    format: Format | None = None,  # noqa: A002 - the word for it
) -> dict[str, Question]:
    """Reads a set of questions.

    Args:
        text: The content of the file.
        source: The file's name, for messages.
        format: By default JSON where `source` ends in ".json", else YAML.

    Raises:
        ConfigurationError: The text is not YAML or JSON, or not a map of questions; names the file.
        QuestionError: A question is malformed; names the file, the question and the fault.
    """
    chosen = format or ("json" if source.endswith(".json") else "yaml")
    body = _json(text, source) if chosen == "json" else _yaml(text, source)
    if not isinstance(body, dict) or not body:
        raise ConfigurationError(f"{source}: it must be a map of at least one question, by id")
    questions: dict[str, Question] = {}
    for name, fields in cast("dict[str, object]", body).items():
        try:
            questions[name] = _question(fields)
            check_questions({name: questions[name]})
        except _FaultError as error:
            raise QuestionError(name, f"{error} ({source})") from None
        except QuestionError as error:
            raise QuestionError(name, f"{error.fault} ({source})") from error
    return questions


def _question(body: object) -> Question:
    if not isinstance(body, dict):
        raise _FaultError("it must be a map with `type` and what belongs to that type")
    fields = cast("dict[str, Any]", body)
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise _FaultError("`type` must be boolean, choice or score")
    unknown = sorted(fields.keys() - _FIELDS[kind])
    if unknown:
        known = ", ".join(sorted(_FIELDS[kind]))
        raise _FaultError(f"a {kind} has no field {', '.join(map(repr, unknown))}; it has {known}")
    examples = list(_examples(fields))
    match kind:
        case "boolean":
            sides = {side: fields.get(side) for side in ("true", "false")}
            return Boolean(fields.get("instructions"), **sides, examples=examples)
        case "choice":
            return Choice(_options(fields), fields.get("instructions"), examples=examples)
        case _:
            return Score(_levels(fields), fields.get("instructions"), examples=examples)


def _options(fields: Fields) -> dict[str, Any]:
    options = fields.get("options")
    if isinstance(options, dict):
        return cast("dict[str, Any]", options)
    if not isinstance(options, list):
        raise _FaultError("a choice needs `options`: a list of names, or a map of names to descriptions")
    names = [name for name in cast("list[object]", options) if isinstance(name, str)]
    if len(names) != len(cast("list[object]", options)):
        raise _FaultError("an option is not text; quote it")
    if len(set(names)) != len(names):
        raise _FaultError("an option is named twice")
    return dict.fromkeys(names)


def _levels(fields: Fields) -> list[Text | None]:
    levels = fields.get("levels")
    if not isinstance(levels, list):
        raise _FaultError("a score needs `levels`: a list from lowest to highest")
    return cast("list[Text | None]", levels)


def _examples(fields: Fields) -> Iterator[Example[Any]]:
    given = fields.get("examples", [])
    if not isinstance(given, list):
        raise _FaultError("`examples` must be a list")
    for number, entry in enumerate(cast("list[object]", given), 1):
        match entry:
            case {"text": str(text), "label": bool() | str() | int() | float() as label} if _only(entry):
                yield Example[Any](text, label)
            case _:
                raise _FaultError(
                    f"example {number} needs `text`, a `label` (true or false, an option, or a number), "
                    "and nothing else"
                )


def _only(entry: object) -> bool:
    return set(cast("dict[str, object]", entry)) == {"text", "label"}


def _json(text: str, source: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{source}: line {error.lineno} is not JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{source}: it is not usable JSON ({error})") from None


def _pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return read


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a number of JSON")


def _yaml(text: str, source: str) -> object:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _value(node)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1} "
        raise ConfigurationError(f"{source}: {line}is not YAML ({error.problem})") from None
    except (yaml.YAMLError, RecursionError, _FaultError) as error:
        raise ConfigurationError(f"{source}: it is not usable YAML ({error})") from None


def _value(node: yaml.Node) -> object:
    """A node with the types of JSON: keys are text, and `yes`, `on` and dates are no more than words."""
    match node:
        case yaml.MappingNode():
            return _map(node)
        case yaml.SequenceNode():
            return [_value(each) for each in cast("list[yaml.Node]", node.value)]
        case _:
            text = cast("str", node.value)
            quoted = cast("yaml.ScalarNode", node).style is not None
            return text if quoted else _plain(text)


def _map(node: yaml.MappingNode) -> dict[str, object]:
    read: dict[str, object] = {}
    for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _FaultError(f"line {line}: a key must be text")
        name = cast("str", key.value)
        if name in read:
            raise _FaultError(f"line {line}: the key {name!r} is there twice")
        read[name] = _value(value)
    return read


def _plain(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if any(sign in text for sign in ".eE") else int(text)
