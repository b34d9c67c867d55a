"""`classifier history label`, and what labels are good for: how reliable answers are, and examples."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TypeAlias

from rich.console import Console

from classifier.audit.export import ExportPage, strict
from classifier.audit.history import History
from classifier.audit.keeping import checked_name
from classifier.audit.labelled import LABEL, Labelled, LabelledDecisions
from classifier.audit.query import DecisionQuery
from classifier.audit.records import HistoryEvent
from classifier.calibration import Judged, Reliability, judged, reliability
from classifier.errors import ConfigurationError
from classifier.labelling import read_label
from classifier.values import JSON, language_of
from commands.look import bounds_of, identity
from commands.reading import grouped
from commands.show import bar, print_json, say, table
from worker import Settings, opened

_LINES = 100

_Asked: TypeAlias = tuple[str, str]
"""A classifier and one of its questions."""


async def label(
    settings: Settings,
    decision_id: str,
    *,
    question: str,
    answer: str,
    tenant: str,
    by: str,
    reason: str | None,
    as_json: bool,
) -> None:
    """Puts on record what a person would have answered.

    The event's id is new each time: who says A, then B, then A again means the last, and an id made of what
    is said would find the first A there already. A repeat by accident says the same twice, and changes
    nothing.

    Raises:
        ConfigurationError: There is no such decision or question, or the label does not fit the answer.
    """
    async with opened(settings, temporal=False) as service, History(service.database_url) as history:
        decision = await history.get(tenant, identity(decision_id))
        if decision is None:
            raise ConfigurationError(f"tenant {tenant!r} has no decision {decision_id}")
        meant = read_label(decision.answers, question, answer)
        by = checked_name(by, decision.ids.resource)
        at = decision.coordinates
        event = HistoryEvent(
            event_id=uuid.uuid4(),
            at=datetime.now(UTC),
            tenant=tenant,
            kind=LABEL,
            workflow_id=at.workflow_id,
            run_id=at.run_id,
            decision_id=decision.decision_id,
            actor=by,
            body={"question": question, "answer": meant.label, "reason": reason},
        )
        await service.store.record_events([event])
    if as_json:
        print_json(
            {
                "event_id": str(event.event_id),
                "decision_id": str(decision.decision_id),
                "question": question,
                "answer": meant.label,
                "by": by,
            }
        )
        return
    say(Console(), f"{decision.decision_id} {question}: {_said(meant.label)}, says {by}")


async def calibration(settings: Settings, query: DecisionQuery, *, as_json: bool) -> None:
    """Prints how the probabilities of answers compare with what people said, question by question."""
    answers: dict[_Asked, list[Judged]] = {}
    left_out: dict[_Asked, int] = {}
    async with (
        opened(settings, temporal=False) as service,
        LabelledDecisions(service.database_url) as labels,
        aclosing(labels.of(query)) as labelled,
    ):
        async for one in labelled:
            asked = (one.decision.classifier_id, one.answer.question)
            answer = (one.decision.answers or {}).get(one.answer.question)
            found = None if answer is None else judged(answer, one.answer.label)
            answers.setdefault(asked, []).extend([] if found is None else [found])
            left_out[asked] = left_out.get(asked, 0) + (found is None)
    figures = {asked: reliability(answers[asked]) for asked in sorted(answers)}
    if as_json:
        print_json(_as_json(query, figures, left_out))
        return
    _show(Console(), query, figures, left_out)


async def labelled_lines(database_url: str, query: DecisionQuery) -> AsyncGenerator[ExportPage]:
    """Labels as `classifier.labels` reads them, in pages; a decision without its text is left out."""
    async with (
        LabelledDecisions(database_url) as labels,
        aclosing(labels.of(query)) as labelled,
    ):
        lines = (_line(one) async for one in labelled if language_of(one.decision.state).strip())
        async for page in grouped(lines, _LINES):
            yield ExportPage("".join(page), len(page))


def _line(one: Labelled) -> str:
    state = one.decision.state
    body: dict[str, JSON] = {
        "question": one.answer.question,
        "text" if isinstance(state, str) else "state": state,
        "label": one.answer.label,
        "decision_id": str(one.decision.decision_id),
        "by": one.by,
        "at": one.at.isoformat(),
        "from": one.origin,
    }
    return json.dumps(strict(body), allow_nan=False) + "\n"


def _said(label: JSON) -> str:
    return label if isinstance(label, str) else json.dumps(label)


_COLUMNS = ("probability", "#answers", "#said", "#was", "")


def _show(
    console: Console,
    query: DecisionQuery,
    figures: Mapping[_Asked, Reliability | None],
    left_out: Mapping[_Asked, int],
) -> None:
    if not figures:
        say(console, f"nobody has labelled decisions of tenant {query.tenant} that these filters name")
    for asked, found in figures.items():
        without = f"{left_out[asked]} labels of answers without a calibrated probability"
        name = " ".join(asked)
        if found is None:
            say(console, f"{name}: {without}")
            continue
        title = f"{name}: {found.count} labels, Brier {found.brier:.3f}, ECE {found.ece:.3f}"
        rows = [
            (
                f"{each.low:.1f} to {each.high:.1f}",
                str(each.count),
                f"{each.predicted:.2f}",
                f"{each.observed:.2f}",
                bar(each.observed),
            )
            for each in found.bins
        ]
        console.print(table(title, _COLUMNS, rows))
        if left_out[asked]:
            say(console, f"besides {without}")


def _as_json(
    query: DecisionQuery, figures: Mapping[_Asked, Reliability | None], left_out: Mapping[_Asked, int]
) -> dict[str, JSON]:
    return {
        "tenant": query.tenant,
        **bounds_of(query),
        "calibration": [
            {
                "classifier": asked[0],
                "question": asked[1],
                "left_out": left_out[asked],
                **_figures(found),
            }
            for asked, found in figures.items()
        ],
    }


def _figures(found: Reliability | None) -> dict[str, JSON]:
    if found is None:
        return {"count": 0, "brier": None, "ece": None, "bins": []}
    return {**asdict(found), "bins": [asdict(each) for each in found.bins]}
