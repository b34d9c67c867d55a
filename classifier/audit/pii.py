"""A redactor for personal data of fixed form: addresses, numbers, accounts. The optional extra `pii`.

Presidio's pattern recognizers do the finding, with their checksums. No language model is loaded and nothing
is fetched; so names of people are not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from classifier.audit.contents import Redaction
from classifier.errors import ConfigurationError

if TYPE_CHECKING:
    from presidio_analyzer import EntityRecognizer, RecognizerResult

LONGEST = 100_000
"""Characters of a text that is looked through; at the worst it takes a few seconds."""

_SURE_ENOUGH = 0.4


class PiiRedactor:
    """Replaces what it finds by its kind, `<EMAIL_ADDRESS>` for example, and counts the kinds.

    Finds e-mail addresses, payment cards, IBANs, IP addresses, US social security numbers, and telephone
    numbers: international ones, and those of `regions`.

    Args:
        regions: Countries whose telephone numbers are known without their prefix; each costs time.

    Raises:
        ConfigurationError: The extra is not installed.
    """

    def __init__(self, regions: Sequence[str] = ("US",)) -> None:
        self._recognizers = _recognizers(regions)

    def __call__(self, text: str) -> Redaction:
        """`text` without what was found.

        Raises:
            ValueError: It is longer than is looked through.
        """
        if len(text) > LONGEST:
            raise ValueError(f"a text of {len(text):,} characters is too long to be looked through")
        found = _apart(
            result
            for recognizer in self._recognizers
            for result in recognizer.analyze(text, recognizer.supported_entities, None)  # type: ignore[arg-type] # patterns need no language model
            if result.score >= _SURE_ENOUGH
        )
        parts: list[str] = []
        end = 0
        for result in found:
            parts += [text[end : result.start], f"<{result.entity_type}>"]
            end = result.end
        return Redaction("".join([*parts, text[end:]]), Counter(str(result.entity_type) for result in found))


def _apart(found: Iterable[RecognizerResult]) -> list[RecognizerResult]:
    """Those that overlap as one, of the surer one's kind."""
    ordered = sorted(found, key=lambda result: (result.start, -result.end))
    kept: list[RecognizerResult] = []
    for result in ordered:
        if not kept or result.start >= kept[-1].end:
            kept.append(result)
            continue
        last = kept[-1]
        surer = max(last, result, key=lambda each: (each.score, each.end - each.start))
        surer.start, surer.end = last.start, max(last.end, result.end)
        kept[-1] = surer
    return kept


def _recognizers(regions: Sequence[str]) -> list[EntityRecognizer]:
    try:
        from presidio_analyzer import predefined_recognizers as known  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise ConfigurationError(
            "redaction of personal data needs the extra: pip install 'temporal-classifier[pii]'"
        ) from error

    class Email(known.EmailRecognizer):
        """By its form alone: the original asks the network for the list of top-level domains."""

        def validate_result(self, pattern_text: str) -> bool:
            """Not checked."""
            del pattern_text
            return True

    return [
        Email(),
        known.CreditCardRecognizer(),
        known.IbanRecognizer(),
        known.IpRecognizer(),
        known.UsSsnRecognizer(),
        known.PhoneRecognizer(supported_regions=tuple(regions)),
    ]
