"""Text as a reader would see it, for judging: the original is never changed. Pure.

Three steps, each reported when it changed something:

    nfkc         full-width, mathematical and other compatibility forms become ordinary characters
    format       invisible characters go; tag characters, which a model may read, become what they spell
    confusables  letters of other scripts that look Latin become Latin, in words that pretend to be Latin

A word pretends to be Latin when it mixes Latin letters with look-alikes, or when it consists of look-alikes
alone in a text that is not otherwise in their script. Real Russian or Greek stays what it is.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_TAGS = {code: code - 0xE0000 for code in range(0xE0020, 0xE007F)}

_IGNORABLE = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)} | set(
    range(0xE0100, 0xE01F0)
)

_LOOKALIKES = str.maketrans(
    # Cyrillic
    "авсԁеһіјкӏмнорԛгѕтѵԝхуьАВСԀЕНІЈКӀМОРԚЅТѴԜХУҮёЁїЇ"
    # Greek
    "αβεγιικνορτυωχΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳϹϺάέήίόύώϊ"
    # Armenian
    "հոցսօՍՕ"  # noqa: RUF001 - look-alikes are the point
    # small capitals and other Latin oddities
    "ɑɡɩȷʏʀɴʙɢʜʟᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢꜱ",
    "abcdehijklmhopqrstvwxybABCDEHIJKIMOPQSTVWXYYeEiI"
    "abeyiikvoptuwxABEZHIKMNOPTYXcjCMaeniouwi"
    "hnguoUO"
    "agijyrnbghlacdejkmoptuvwzs",
)

_WORD = re.compile(r"\w+")
_SHORTEST_DISGUISE = 3  # a lone alpha or beta is a symbol, not a disguise


@dataclass(frozen=True, slots=True)
class Normalised:
    """A text as it is judged.

    Attributes:
        text: What is judged.
        changes: Which of "nfkc", "format" and "confusables" changed something, in this order.
    """

    text: str
    changes: tuple[str, ...] = ()


def normalise(text: str) -> Normalised:
    """`text` as a reader would see it."""
    if text.isascii() and text.isprintable():
        return Normalised(text)
    changes: list[str] = []
    for name, step in (("nfkc", _nfkc), ("format", _without_format), ("confusables", _latin)):
        changed = step(text)
        if changed != text:
            changes.append(name)
        text = changed
    return Normalised(text, tuple(changes))


def visible_length(text: str) -> int:
    """How many characters of `text` a reader sees as characters of their own.

    Invisible characters and combining marks count nothing, so padding cannot stretch a term.
    """
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(not _is_invisible(char) and not unicodedata.combining(char) for char in text)


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _without_format(text: str) -> str:
    spelled = text.translate(_TAGS)
    kept = "".join(char for char in spelled if not _is_invisible(char))
    return unicodedata.normalize("NFKC", kept)


def _is_invisible(char: str) -> bool:
    code = ord(char)
    if code in _TAGS:
        return False
    return unicodedata.category(char) == "Cf" or code in _IGNORABLE


def _latin(text: str) -> str:
    other_script = any(_is_foreign(char) for char in text)
    return _WORD.sub(lambda word: _latin_word(word[0], other_script=other_script), text)


def _latin_word(word: str, *, other_script: bool) -> str:
    letters = [char for char in word if char.isalpha()]
    lookalikes = [char for char in letters if ord(char) in _LOOKALIKES]
    if not lookalikes:
        return word
    mixed = any(char.isascii() for char in letters)
    whole = len(letters) >= _SHORTEST_DISGUISE and len(lookalikes) == len(letters)
    pretends = mixed or (whole and not other_script)
    return word.translate(_LOOKALIKES) if pretends else word


def _is_foreign(char: str) -> bool:
    """A letter of a script with look-alikes that itself looks like no Latin one."""
    if char.isascii() or not char.isalpha() or ord(char) in _LOOKALIKES:
        return False
    return unicodedata.name(char, "").partition(" ")[0] in {"CYRILLIC", "GREEK", "ARMENIAN"}
