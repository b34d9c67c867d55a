"""What the documents say of errors, question files and services is what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from classifier import errors, models
from classifier.errors import ClassifierError
from classifier.models import decisions, systemone
from classifier.models.systemone import Service
from classifier.question_files import _FIELDS, parse_questions
from tests.markdown import Document
from tests.tree import ROOT

QUESTIONS = Document(ROOT / "docs" / "questions.md")
MODELS = Document(ROOT / "docs" / "decision-models.md")
SERVICES = sorted(name for name, value in vars(systemone).items() if isinstance(value, Service))


def rows(document: Document, header: str) -> Iterator[list[str]]:
    """The cells below the table whose first header is this."""
    _, _, rest = document.text.partition(f"\n| {header} |")
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def span(limit: tuple[int, int | None]) -> str:
    return "" if limit[1] is None else f"{limit[0]}\N{EN DASH}{limit[1]}"


def tree(error: type[ClassifierError] = ClassifierError) -> Iterator[type[ClassifierError]]:
    yield error
    for below in error.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def test_the_errors_table_is_the_tree() -> None:
    told = {row[0]: (row[1], row[2]) for row in rows(QUESTIONS, "error")}
    known = {
        f"`{error.__name__}`": (f"`{error.code}`", "yes" if error.retryable else "no") for error in tree()
    }
    known["`InvalidAnswer`"] = ("`INVALID_ANSWER`", "if unreadable")
    assert told == known


def test_the_file_that_is_shown_is_a_good_one() -> None:
    (block,) = QUESTIONS.blocks("yaml")
    assert list(parse_questions(block.code)) == ["unsafe", "topic", "mood"]


def test_the_fields_of_a_file_are_all_told() -> None:
    told = {name for row in rows(QUESTIONS, "field") for name in re.findall(r"`(\w+)`", row[0])}
    assert told == {name for fields in _FIELDS.values() for name in fields}


def test_every_adapter_is_in_the_table() -> None:
    told = {name for row in rows(MODELS, "adapter") for name in re.findall(r"`(\w+)`", row[0])}
    adapters = {name for name in models.__all__ if hasattr(getattr(models, name), "configure")}
    assert told == adapters - {"DecisionModel"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_told_as_it_is(name: str) -> None:
    service: Service = getattr(systemone, name)
    (row,) = [row for row in rows(MODELS, "service") if row[0] == f"`{name}`"]
    host = (service.base_url or "").partition("://")[2]
    assert row[1] == f"`{host}{service.path}`"
    variables = (*service.api_key_variables, *service.base_url_variables, *service.model_variables)
    assert re.findall(r"`(\w+)`", row[2]) == list(variables)
    limits = service.limits
    assert row[3] == (f"≤ {limits.questions}" if limits.questions else "")
    assert row[4] == span(limits.options)
    assert row[5] == span(limits.levels)


@pytest.mark.parametrize("service", [decisions._OPENAI, decisions._AZURE, decisions._LITELLM])
def test_the_variables_of_the_list_form_are_told(service: decisions._Service) -> None:
    for variable in (*service.endpoint.api_key_variables, *service.endpoint.base_url_variables):
        assert f"`{variable}`" in MODELS.text
