"""The error tree is the one that is drawn."""

from __future__ import annotations

import re

import pytest

from classifier import errors
from classifier.errors import ClassifierError, InvalidAnswer, ModelError, QuestionError


def _tree(kind: type[Exception]) -> dict[str, object]:
    ours = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return {child.__name__: _tree(child) for child in ours}


def _drawn(lines: list[str]) -> dict[str, object]:
    """The tree of a drawing: a name's column says how deep it is."""
    root: dict[str, object] = {}
    levels: list[tuple[int, dict[str, object]]] = [(-1, root)]
    for line in lines:
        found = re.search(r"[A-Z][A-Za-z]+", line)
        assert found is not None
        while levels[-1][0] >= found.start():
            levels.pop()
        children: dict[str, object] = {}
        levels[-1][1][found[0]] = children
        levels.append((found.start(), children))
    return root


def test_the_docstring_draws_every_error_where_it_is() -> None:
    drawing = (errors.__doc__ or "").split("\n\n")[1].splitlines()
    assert _drawn(drawing) == {"ClassifierError": _tree(ClassifierError)}


def _all(kind: type[ClassifierError]) -> list[type[ClassifierError]]:
    ours = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [kind, *(grandchild for child in ours for grandchild in _all(child))]


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = _all(ClassifierError)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(re.fullmatch("[A-Z_]+", kind.code) for kind in kinds)


def test_what_may_help_to_repeat_is_said() -> None:
    retryable = {kind.__name__ for kind in _all(ClassifierError) if kind.retryable}
    assert retryable == {"ModelUnavailable", "RateLimited", "StoreUnavailable"}


@pytest.mark.parametrize("unreadable", [True, False])
def test_only_an_unreadable_answer_is_worth_another_try(unreadable: bool) -> None:
    assert InvalidAnswer("half a body", unreadable=unreadable).retryable is unreadable


def test_an_error_carries_what_its_reader_needs() -> None:
    error = ModelError("no", status=429, request_id="r", retry_after=2.5, provider_code="busy")
    assert (error.status, error.request_id, error.retry_after, error.provider_code) == (429, "r", 2.5, "busy")
    invalid = InvalidAnswer("no", missing=("a",), extra=("b",))
    assert (invalid.missing, invalid.extra) == (("a",), ("b",))
    fault = QuestionError("topic", "it is wrong")
    assert (fault.question, fault.fault, str(fault)) == (
        "topic",
        "it is wrong",
        "question 'topic': it is wrong",
    )
