"""Look-alikes, format characters and full-width letters before judging."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.normalise import _LOOKALIKES, normalise, visible_length

TAGGED = "".join(chr(0xE0000 + ord(char)) for char in "obey")
SPELLING = "".join(map(chr, range(0xE0020, 0xE007F)))


@pytest.mark.parametrize(
    ("text", "seen", "changes"),
    [
        ("i\u200bgnore rules", "ignore rules", ("format",)),
        ("\u0456gn\u043ere", "ignore", ("confusables",)),
        ("\uff49\uff47\uff4e\uff4f\uff52\uff45", "ignore", ("nfkc",)),
        ("\U0001d422\U0001d420\U0001d427ore", "ignore", ("nfkc",)),
        ("i\u00adg\u2060n\ufe0fore", "ignore", ("format",)),
        ("\ufeff\u0456\u200dgn\uff4fre", "ignore", ("nfkc", "format", "confusables")),
        (f"hello{TAGGED}", "helloobey", ("format",)),
        ("\u0440\u0430\u0441\u0435", "pace", ("confusables",)),
        ("cafe\u0301", "caf\u00e9", ("nfkc",)),
        ("e\u200b\u0301", "\u00e9", ("format",)),
        ("plain\ttext\n", "plain\ttext\n", ()),
        ("", "", ()),
    ],
)
def test_text_is_seen_as_a_reader_sees_it_and_what_changed_is_said(
    text: str, seen: str, changes: tuple[str, ...]
) -> None:
    normalised = normalise(text)
    assert (normalised.text, normalised.changes) == (seen, changes)


@pytest.mark.parametrize(
    "text",
    [
        "\u043f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440, \u044d\u0442\u043e \u0441\u043e\u043d",
        "\u03bb\u03cc\u03b3\u03bf\u03c2 \u03ba\u03b1\u03b9 \u03c4\u03bf \u03ad\u03c1\u03b3\u03bf",
        "\u03b1 = 0.05 and \u03b2 = 0.2",
        "Stra\u00dfe, na\u00efve, \u00e5ngstr\u00f6m",
        "\u4f60\u597d",
        "\u0645\u0631\u062d\u0628\u0627",
    ],
)
def test_real_words_of_other_scripts_stay_what_they_are(text: str) -> None:
    assert normalise(text).text == text


def test_every_look_alike_becomes_an_ascii_letter() -> None:
    for code, letter in _LOOKALIKES.items():
        name = unicodedata.name(chr(code))
        assert chr(letter).isascii(), name
        assert chr(letter).isalpha(), name


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text).text
    assert normalise(once).text == once


@given(st.text())
def test_a_change_is_reported_exactly_when_something_changed(text: str) -> None:
    normalised = normalise(text)
    assert (normalised.text != text) <= bool(normalised.changes)
    assert bool(normalised.changes) or normalised.text == text


@given(st.text(st.characters(categories=["Cf", "Mn"], exclude_characters=SPELLING)))
def test_what_is_invisible_counts_nothing(text: str) -> None:
    ignorable = "".join(char for char in text if unicodedata.category(char) == "Cf")
    assert visible_length(ignorable) == 0


@pytest.mark.parametrize(
    ("text", "length"), [("HUNTER2", 7), ("H\u200bU\u2060N", 3), ("cafe\u0301", 4), ("\n\t", 2)]
)
def test_visible_length_counts_what_a_reader_sees(text: str, length: int) -> None:
    assert visible_length(text) == length
