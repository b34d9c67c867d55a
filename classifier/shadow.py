"""A second policy, or a second classifier, beside the one of a playbook: on record, never acted on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from classifier.answers import Answers
from classifier.classifier import Classifier

if TYPE_CHECKING:
    from classifier.playbook import Playbook, RouteFunction

A = TypeVar("A", bound=Answers)

LONGEST_BUDGET = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Shadow(Generic[A]):
    """What else could decide on a playbook's events; what is left out is as in the playbook.

    Where it asks the same classifier, no model is asked twice: the answers of the live decision are judged
    anew.

    Attributes:
        policy_version: The author's name for it, recorded with each of its decisions.
        classifier: The classifier it asks, or its key or id.
        gates: Lowest probability per question.
        routes: The closed set of places it knows.
        route: From typed answers to one of `routes`, or a `Review`; may be async.
        budget: How long it may take, from the live decision on; a run does not end before.
    """

    policy_version: str
    classifier: Classifier[A] | str | None = None
    gates: Mapping[str, float] | None = None
    routes: tuple[str, ...] | None = None
    route: RouteFunction[A] | None = None
    budget: timedelta = timedelta(seconds=30)

    def of(self, playbook: Playbook[Any]) -> Playbook[Any]:
        """The playbook as it would be with this in the place of what is live."""
        changed = {name: getattr(self, name) for name in ("classifier", "gates", "routes", "route")}
        given = {name: value for name, value in changed.items() if value is not None}
        return replace(playbook, policy_version=self.policy_version, shadow=None, **given)

    def problems(self, playbook: Playbook[Any]) -> Iterable[str]:
        """What is wrong with it as the shadow of `playbook`, one sentence each."""
        of = f"the shadow of playbook {playbook.id!r}"
        if not self.policy_version.strip() or self.policy_version == playbook.policy_version:
            yield f"{of} needs a policy_version of its own"
        if (self.classifier, self.gates, self.routes, self.route) == (None, None, None, None):
            yield f"{of} is the playbook once more; give it a classifier, gates or a route"
        if self.routes is not None and not self.routes:
            yield f"{of} has no routes"
        if not timedelta(0) < self.budget <= LONGEST_BUDGET:
            yield f"{of} has a budget that is not between nothing and {LONGEST_BUDGET}"
