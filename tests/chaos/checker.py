"""What has to hold after a run, however much went wrong in it: pure functions over the facts.

    for found in check(facts):
        found.name, found.checked, found.breaches

A breach names ids and codes, never texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tests.chaos.facts import Facts, Happened, Post, Row, Said

T = TypeVar("T")
Rule: TypeAlias = Callable[[Facts], tuple[int, Iterable[str]]]

ENDED = "COMPLETED"
OPEN = "RUNNING"
DELIVERED = "delivered"
DEAD = "dead_letter"
SETTLED = {(ENDED, DELIVERED), (ENDED, "dropped"), (OPEN, "review"), (OPEN, DEAD)}
"""How a run may be left: what Temporal and what the run itself says."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How an invariant fared.

    Attributes:
        name: What has to hold.
        checked: How many things were looked at.
        breaches: What does not hold, one sentence each.
    """

    name: str
    checked: int
    breaches: tuple[str, ...]


def check(facts: Facts) -> tuple[Finding, ...]:
    """Every invariant, in the order in which they are best read."""
    return tuple(_found(name, rule(facts)) for name, rule in RULES.items())


def _found(name: str, result: tuple[int, Iterable[str]]) -> Finding:
    checked, breaches = result
    return Finding(name, checked, tuple(breaches))


def ended_or_waits(facts: Facts) -> tuple[int, Iterable[str]]:
    """One run for each event, which was delivered, waits for a person, or is among the dead letters."""
    runs = grouped(facts.runs, lambda run: run.workflow)
    dead = {each.workflow for each in facts.happened if each.kind == DEAD}

    def breaches() -> Iterator[str]:
        for sent in facts.sent:
            own = runs[sent.workflow]
            if len(own) != 1:
                yield f"event {sent.event} has {len(own)} runs"
            elif (own[0].status, own[0].state) not in SETTLED:
                yield f"event {sent.event}: its run is {own[0].status} and in the state {own[0].state}"
            elif own[0].state == DEAD and sent.workflow not in dead:
                yield f"event {sent.event} is a dead letter that the history does not know"
        known = {sent.workflow for sent in facts.sent}
        yield from (f"run {name} belongs to no event that was sent" for name in runs if name not in known)

    return len(facts.sent), breaches()


def code_and_history_agree(facts: Facts) -> tuple[int, Iterable[str]]:
    """No workflow task failed for what its code did; those that time out are none of these."""
    return len(facts.runs), (
        f"a workflow task of {run.workflow} failed: {cause}" for run in facts.runs for cause in run.broken
    )


def commands_end_well(facts: Facts) -> tuple[int, Iterable[str]]:
    """A command that is run again until it succeeds does so once there is peace."""
    return len(facts.commands), (
        f"classifier {name} ended with {'nothing' if code is None else code}"
        for name, code in facts.commands.items()
        if code != 0
    )


def remembered(facts: Facts) -> tuple[int, Iterable[str]]:
    """An event that was taken is known by the database, with the run that it has."""
    return len(facts.sent), (
        f"event {sent.event} was taken and the database does not know it with its run"
        for sent in facts.sent
        if facts.remembered.get(sent.event) != sent.workflow
    )


def decided_once(facts: Facts) -> tuple[int, Iterable[str]]:
    """An id is one decision, a place has one decision, and an event has one."""

    def breaches() -> Iterator[str]:
        for name, count in Counter(row.decision for row in facts.rows).items():
            if count > 1:
                yield f"decision {name} is there {count} times"
        for place, count in Counter(row.place for row in facts.rows).items():
            if count > 1:
                yield f"{count} decisions were made at {'/'.join(map(str, place))}"
        for name, count in Counter(row.workflow for row in steps(facts)).items():
            if count > 1:
                yield f"{count} decisions were made in {name}"

    return len(facts.rows), breaches()


def none_lost(facts: Facts) -> tuple[int, Iterable[str]]:
    """What activities told their workflow, what runs rest on and what turns name is on record."""
    known = {row.decision for row in facts.rows}
    told = [(run.workflow, each.decision) for run in facts.runs for each in run.branched]
    told += [(run.workflow, run.decision) for run in facts.runs if run.decision is not None]
    told += [(said.thread, each) for said in facts.kept for each in said.decisions]

    def breaches() -> Iterator[str]:
        yield from (
            f"decision {name} of {where} is not on record" for where, name in told if name not in known
        )
        decided = {row.workflow for row in steps(facts)}
        for run in facts.runs:
            if run.status == ENDED and run.workflow not in decided:
                yield f"run {run.workflow} has ended without a decision on record"

    return len(told), breaches()


def acted_on(facts: Facts) -> tuple[int, Iterable[str]]:
    """The branch that a workflow took is the one on record."""
    rows = {row.decision: row for row in facts.rows}
    told = [(run, each) for run in facts.runs for each in run.branched if each.decision in rows]
    return len(told), (
        f"run {run.workflow} was told {each.action} {each.route}, "
        f"and {rows[each.decision].action} {rows[each.decision].route} is on record"
        for run, each in told
        if (each.action, each.route) != (rows[each.decision].action, rows[each.decision].route)
    )


def answered_by_the_model(facts: Facts) -> tuple[int, Iterable[str]]:
    """An answer on record was given by the model about this very text."""
    answered = [row for row in steps(facts) if not row.failed]
    return len(answered), (
        f"decision {row.decision} holds an answer that the model never gave"
        for row in answered
        if row.answer not in facts.given.get(row.text, ())
    )


def delivered_as_decided(facts: Facts) -> tuple[int, Iterable[str]]:
    """Where an event went is where its decision, or the person who was asked, said."""
    posts = grouped(facts.posts, lambda post: post.event)
    rows = {row.workflow: row for row in steps(facts)}
    reviews = {each.workflow: each for each in facts.happened if each.kind == "review"}
    runs = {run.workflow: run for run in facts.runs}

    def breaches() -> Iterator[str]:
        for sent in facts.sent:
            should = _should_go(rows.get(sent.workflow), reviews.get(sent.workflow))
            run = runs.get(sent.workflow)
            if run is not None and run.state == DELIVERED and run.route != should:
                yield f"run {sent.workflow} says it went to {run.route}, and {should} was decided"
            for post in posts[sent.event]:
                if post.route != should:
                    yield f"event {sent.event} went to {post.route}, and {should} was decided"

    return len(facts.posts), breaches()


def delivered_once(facts: Facts) -> tuple[int, Iterable[str]]:
    """A key stands for one content; a delivered event has one key and one entry in the history."""
    by_event = grouped(facts.posts, lambda post: post.event)
    by_key = grouped(facts.posts, lambda post: post.key)
    noted = grouped((each for each in facts.happened if each.kind == "delivery"), lambda each: each.workflow)
    states = {run.workflow: run.state for run in facts.runs}

    def breaches() -> Iterator[str]:
        for key, posts in by_key.items():
            if not key:
                yield f"{len(posts)} deliveries came without an idempotency key"
            elif len({post.content for post in posts}) > 1:
                yield f"key {key} came with several contents"
        for sent in facts.sent:
            if states.get(sent.workflow) == DELIVERED:
                yield from _delivery_faults(sent.event, by_event[sent.event], noted[sent.workflow])

    return len(facts.posts), breaches()


def choices_kept(facts: Facts) -> tuple[int, Iterable[str]]:
    """What a person was told is taken is in the history, once, and is what they chose."""
    reviews = grouped((each for each in facts.happened if each.kind == "review"), lambda each: each.workflow)
    taken = [choice for choice in facts.choices if choice.taken]
    return len(taken), (
        f"the choice {choice.route} for {choice.workflow} was taken, and the history has "
        f"{[each.route for each in reviews[choice.workflow]]}"
        for choice in taken
        if [each.route for each in reviews[choice.workflow]] != [choice.route]
    )


def turns_end_once(facts: Facts) -> tuple[int, Iterable[str]]:
    """A message has one turn, with one terminal event, and its sender was told what the thread keeps."""
    kept = grouped(facts.kept, lambda said: (said.thread, said.message))

    def breaches() -> Iterator[str]:
        for said in facts.said:
            name = (said.thread, said.message)
            if said.outcome is None:
                yield f"turn {said.message} never ended"
            elif kept[name] != [said]:
                outcomes = [each.outcome for each in kept[name]]
                yield f"turn {said.message} was told as {said.outcome}, and is kept as {outcomes}"
            elif facts.endings.get(name) != 1:
                yield f"turn {said.message} has {facts.endings.get(name, 0)} terminal events"

    return len(facts.said), breaches()


def released_was_judged(facts: Facts) -> tuple[int, Iterable[str]]:
    """What a reply, and a reader's screen, is made of stands in decisions that let it through."""
    rows = {row.decision: row for row in facts.rows}

    def breaches() -> Iterator[str]:
        for said in facts.kept:
            judged = [rows[each] for each in said.decisions if each in rows]
            streamed = _text(judged, "stream")
            seen = facts.shown.get((said.thread, said.message), "")
            if said.outcome == "finished":
                if not said.reply == streamed == _text(judged, "output"):
                    yield f"turn {said.message}: its reply is not what was let through"
                if seen != said.reply:
                    yield f"turn {said.message}: readers are left with another text than the thread"
            elif not (streamed.startswith(said.reply) and streamed.startswith(seen)):
                yield f"turn {said.message} has released what was not let through"

    return len(facts.kept), breaches()


def nothing_blocked_is_kept(facts: Facts) -> tuple[int, Iterable[str]]:
    """No reply, no screen and no prompt holds what a processor stopped."""
    replies = [(f"the reply of {said.message}", said.reply) for said in facts.kept]
    screens = [(f"the screen of {message}", text) for (_, message), text in facts.shown.items()]
    prompts = [(f"prompt {number}", text) for number, text in enumerate(facts.prompts)]
    texts = [*replies, *screens, *prompts]
    return len(texts), (f"{where} holds a blocked text" for where, text in texts if facts.blocked in text)


def logs_are_clean(facts: Facts) -> tuple[int, Iterable[str]]:
    """No process wrote a secret, or a text of an event or a message."""
    return len(facts.logs), (
        f"the log of {log.name} holds {what}" for log in facts.logs for what in log.found
    )


RULES: dict[str, Rule] = {
    "every event has one run, which ended or waits": ended_or_waits,
    "no workflow is at odds with its history": code_and_history_agree,
    "every command that was run again came to a good end": commands_end_well,
    "every event that was taken is remembered": remembered,
    "each decision is made and recorded once": decided_once,
    "no decision is lost": none_lost,
    "what is on record is what was acted on": acted_on,
    "every answer on record is one that the model gave": answered_by_the_model,
    "no outcome was changed on the way": delivered_as_decided,
    "each event is delivered once, by its key": delivered_once,
    "every choice of a person is kept": choices_kept,
    "each turn of an agent ended once": turns_end_once,
    "all text that was released was judged": released_was_judged,
    "nothing blocked is in memory": nothing_blocked_is_kept,
    "no secret and no text is in a log": logs_are_clean,
}


def grouped(things: Iterable[T], key: Callable[[T], object]) -> defaultdict[object, list[T]]:
    """The things by their key, in order."""
    found: defaultdict[object, list[T]] = defaultdict(list)
    for thing in things:
        found[key(thing)].append(thing)
    return found


def steps(facts: Facts) -> Iterator[Row]:
    """The decisions on events."""
    return (row for row in facts.rows if row.phase == "step")


def _should_go(row: Row | None, review: Happened | None) -> str | None:
    if review is not None:
        return review.route
    return row.route if row is not None and row.action == "route" else None


def _delivery_faults(event: str, posts: list[Post], noted: list[Happened]) -> Iterator[str]:
    keys = {post.key for post in posts}
    if len(keys) != 1:
        yield f"event {event} was delivered under {len(keys)} keys"
    if keys != {each.id for each in noted}:
        yield f"event {event}: the history has {len(noted)} deliveries, which are not those of its receiver"


def _text(judged: list[Row], phase: str) -> str:
    return "".join(row.text for row in judged if row.phase == phase and row.outcome == "allowed")


def is_sound(found: Iterable[Finding]) -> bool:
    """Whether nothing is broken."""
    return not any(each.breaches for each in found)


def turns_of(facts: Facts) -> Counter[str]:
    """How many turns came to which end."""
    return Counter(_outcome(said) for said in facts.said)


def _outcome(said: Said) -> str:
    return said.outcome or "none"
