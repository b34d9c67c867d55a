"""`classifier history backtest`: what a policy of today would make of old decisions."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard

from rich.console import Console

from classifier.app import App
from classifier.audit.backtesting import Backtester
from classifier.audit.export import Exporter
from classifier.audit.query import DecisionQuery
from classifier.backtest import Backtest, BacktestReport
from classifier.classifier import Classifier
from classifier.errors import ConfigurationError
from classifier.playbook import Playbook
from classifier.processor import ClassifierProcessor
from classifier.values import JSON
from commands.look import bounds_of
from commands.show import bar, print_json, progress, say, table
from worker import Settings, app_of, opened

Policy: TypeAlias = ClassifierProcessor[Any] | Playbook[Any]


async def backtest(settings: Settings, reference: str, query: DecisionQuery, *, as_json: bool) -> None:
    """Prints how many outcomes would change, from what to what, and where the policy failed.

    Raises:
        ConfigurationError: There is no such processor or playbook.
    """
    policy = policy_of(settings, reference)
    query = _of_policy(query, policy)
    console = Console(stderr=True)
    async with opened(settings, temporal=False) as service:
        total: int | None = None
        if console.is_terminal:
            async with Exporter(service.database_url) as counter:
                total = await counter.count(query)
        async with Backtester(service.database_url) as backtester:
            with progress(console, total, what="decisions") as shown:
                report = await backtester.run(query, Backtest(policy), progress=shown.advance)
    if as_json:
        print_json(_as_json(policy, query, report))
        return
    _show(Console(), policy, query, report)


def policy_of(settings: Settings, reference: str) -> Policy:
    """The processor or playbook that `reference` names, with the questions it is typed by.

    Args:
        settings: Say which app knows the rest.
        reference: `module:name`, or a key or id in the app.

    Raises:
        ConfigurationError: There is no such thing, or it is something else.
    """
    if ":" in reference:
        found = _imported(reference)
        named = isinstance(found.classifier, str) and _declared_nowhere(found)
        return _bound(found, app_of(settings)) if named else found
    app = app_of(settings)
    registered: list[tuple[str, Policy]] = [*app.processors, *app.playbooks]
    candidates = [thing for key, thing in registered if reference in {key, thing.id}]
    if len(candidates) == 1:
        return _bound(candidates[0], app)
    if candidates:
        raise ConfigurationError(
            f"{reference!r} is a processor and a playbook of the app {settings.app!r}; name it as module:name"
        )
    known = ", ".join(thing.id for _, thing in registered) or "none"
    raise ConfigurationError(
        f"the app {settings.app!r} has no processor or playbook {reference!r}; registered: {known}"
    )


def _imported(reference: str) -> Policy:
    module_name, _, name = reference.partition(":")
    if not (module_name and name) or module_name.startswith("."):
        raise ConfigurationError(f"a policy is named as module:name, not {reference!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the policy {reference!r} cannot be imported: {error}") from error
    found: object = getattr(module, name, None)
    if _is_policy(found):
        return found
    raise ConfigurationError(f"{reference!r} is not a ClassifierProcessor or a Playbook")


def _is_policy(found: object) -> TypeGuard[Policy]:
    return isinstance(found, ClassifierProcessor | Playbook)


def _declared_nowhere(policy: Policy) -> bool:
    return isinstance(policy, Playbook) or policy.declared is None


def _bound(policy: Policy, app: App) -> Policy:
    """The same with its classifier looked up; its model is not, since nobody asks it."""
    name = policy.classifier
    if not isinstance(name, str):
        return policy
    classifier = _classifier(app, name)
    if classifier is None:
        what = "playbook" if isinstance(policy, Playbook) else "processor"
        raise ConfigurationError(
            f"{what} {policy.id!r} names the classifier {name!r}, which the app does not have; say --app"
        )
    if isinstance(policy, Playbook):
        return replace(policy, classifier=classifier)
    return policy.bound(classifier)


def _classifier(app: App, name: str) -> Classifier[Any] | None:
    known = {name: each for key, each in app.classifiers for name in (key, each.id)}
    return known.get(name)


def _of_policy(query: DecisionQuery, policy: Policy) -> DecisionQuery:
    if query.processor or query.playbook or query.classifier:
        return query
    if isinstance(policy, Playbook):
        return replace(query, playbook=policy.id)
    return replace(query, processor=policy.id)


def _show(console: Console, policy: Policy, query: DecisionQuery, report: BacktestReport) -> None:
    changed = report.changes.total()
    say(
        console,
        f"{_named(policy)} over {report.decisions} decisions of tenant {query.tenant}: "
        f"{changed} would change, {report.unchanged} would not"
        + (f", {report.errors.total()} failed in the policy" if report.errors else "")
        + (f", {report.failed} have no answers" if report.failed else ""),
    )
    if report.changes:
        console.print(table("What would change", _CHANGE_COLUMNS, list(_change_rows(report))))
    if report.errors:
        rows = [
            (kind, str(count), _examples(report, ("", kind))) for kind, count in _largest_first(report.errors)
        ]
        console.print(table("Where the policy failed", ["error", "#decisions", "for example"], rows))


_CHANGE_COLUMNS = ("became", "would become", "#decisions", "#share", "", "for example")


def _change_rows(report: BacktestReport) -> Iterable[tuple[str, ...]]:
    for (before, after), count in _largest_first(report.changes):
        share = count / report.decisions
        yield (
            before,
            after,
            str(count),
            f"{share:.1%}",
            bar(share),
            _examples(report, (before, after)),
        )


def _largest_first(counts: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _examples(report: BacktestReport, change: tuple[str, str]) -> str:
    return "\n".join(str(decision_id) for decision_id in report.examples[change][:2])


def _named(policy: Policy) -> str:
    return f"{'Playbook' if isinstance(policy, Playbook) else 'Processor'} {policy.id}"


def _as_json(policy: Policy, query: DecisionQuery, report: BacktestReport) -> dict[str, JSON]:
    return {
        "policy": policy.id,
        "kind": "playbook" if isinstance(policy, Playbook) else "processor",
        "policy_version": policy.policy_version,
        "tenant": query.tenant,
        **bounds_of(query),
        "decisions": report.decisions,
        "unchanged": report.unchanged,
        "changed": report.changes.total(),
        "failed": report.failed,
        "changes": [
            {
                "from": before,
                "to": after,
                "count": count,
                "share": count / report.decisions,
                "examples": [str(each) for each in report.examples[before, after]],
            }
            for (before, after), count in _largest_first(report.changes)
        ],
        "errors": [
            {
                "kind": kind,
                "count": count,
                "examples": [str(each) for each in report.examples["", kind]],
            }
            for kind, count in _largest_first(report.errors)
        ],
    }
