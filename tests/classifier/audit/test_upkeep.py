"""What the environment says about keeping and forgetting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from classifier.audit.contents import KEEP_ALL
from classifier.audit.pii import PiiRedactor
from classifier.audit.upkeep import Upkeep, age_of
from classifier.errors import ConfigurationError


def test_with_nothing_said_everything_is_kept_and_partitions_are_made() -> None:
    upkeep = Upkeep.from_environ({"CLASSIFIER_KEEP_CONTENT": "", "CLASSIFIER_CONTENT_RETENTION": ""})
    assert upkeep == Upkeep()
    assert upkeep.contents() == KEEP_ALL
    assert (upkeep.retention, upkeep.content_ages, upkeep.scheduled) == (None, {}, True)


def test_everything_can_be_said() -> None:
    upkeep = Upkeep.from_environ(
        {
            "CLASSIFIER_KEEP_CONTENT": "no",
            "CLASSIFIER_REDACT": "tests.classifier.audit.test_contents:without_digits",
            "CLASSIFIER_RETENTION": "400d",
            "CLASSIFIER_CONTENT_RETENTION": "acme=30d, a=b=2w,",
            "CLASSIFIER_HOUSEKEEPING": "no",
        }
    )
    assert upkeep.retention == timedelta(days=400)
    assert upkeep.content_ages == {"acme": timedelta(days=30), "a=b": timedelta(weeks=2)}
    assert not upkeep.scheduled
    policy = upkeep.contents()
    assert not policy.keep
    assert policy.redact is not None
    assert policy.redact("a1") == "a#"
    assert isinstance(Upkeep(redactor="pii").contents().redact, PiiRedactor)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CLASSIFIER_KEEP_CONTENT", "false", "is 'yes' or 'no', not 'false'"),
        ("CLASSIFIER_RETENTION", "400", "CLASSIFIER_RETENTION: '400' is no length of time"),
        ("CLASSIFIER_RETENTION", "9999999d", "is no length of time"),
        ("CLASSIFIER_CONTENT_RETENTION", "30d", "'30d' is no tenant with an age"),
        ("CLASSIFIER_CONTENT_RETENTION", "acme=soon", "'soon' is no length of time"),
        ("CLASSIFIER_HOUSEKEEPING", "daily", "is 'yes' or 'no'"),
        ("CLASSIFIER_REDACT", "nonsense", "'pii' or a redactor as module:name"),
        ("CLASSIFIER_REDACT", "no.such:thing", "cannot be imported"),
        ("CLASSIFIER_REDACT", "tests.tree:ROOT", "is no redactor"),
    ],
)
def test_what_cannot_be_read_is_named(variable: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Upkeep.from_environ({variable: value}).contents()


def test_ages_have_a_unit() -> None:
    assert [age_of(text) for text in ("12h", " 30d ", "52w")] == [
        timedelta(hours=12),
        timedelta(days=30),
        timedelta(weeks=52),
    ]
    for text in ("", "30", "1.5d", "30m", "-3d"):
        with pytest.raises(ConfigurationError, match="write 12h, 30d or 52w"):
            age_of(text)
