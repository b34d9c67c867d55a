"""What of a state is read, and how criteria fall into phrases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classifier.models.local.phrases import described, plain, split_phrases
from classifier.models.local.text import cut, text_of

if TYPE_CHECKING:
    from classifier.values import State


def test_text_is_read_as_it_is() -> None:
    assert text_of("hello") == "hello"


def test_of_json_the_string_leaves_are_read_in_order() -> None:
    state: State = {"subject": "Card", "id": 7, "thread": [{"text": "lost"}, {"text": " "}, None, True]}
    assert text_of(state) == "Card\nlost"


def test_json_without_strings_is_read_as_json() -> None:
    assert text_of({"battery": 6}) == '{"battery": 6}'


def test_a_short_text_is_not_cut() -> None:
    assert cut("x" * 500, 500) == ("x" * 500, None)


def test_a_long_text_is_cut_at_a_word_and_says_so() -> None:
    text, truncation = cut("word " * 200, 98)
    assert text == ("word " * 19).rstrip()
    assert truncation is not None
    assert (truncation.original, truncation.sent, truncation.by) == (1000, 94, "model")


def test_a_long_word_is_cut_where_the_limit_is() -> None:
    text, truncation = cut("x" * 3_000_000, 500)
    assert len(text) == 500
    assert truncation is not None
    assert truncation.original == 3_000_000


def test_a_description_is_split_at_commas_ends_and_or() -> None:
    assert split_phrases("lost card, stolen phone or wallet. PIN: blocked") == (
        "lost card",
        "stolen phone",
        "wallet",
        "PIN",
        "blocked",
    )


def test_numbers_and_addresses_are_not_split() -> None:
    assert split_phrases("over 1,000.50 euros") == ("over 1,000.50 euros",)


def test_nothing_has_no_phrases() -> None:
    assert split_phrases("") == ()


def test_a_json_criterion_is_read_in_words() -> None:
    assert plain({"applies_to": ["card", "phone"], "not": None}) == "applies to: card, phone, not:"


def test_an_option_without_description_is_its_name_in_words() -> None:
    assert described("card_orders", plain(None)) == "card orders"
