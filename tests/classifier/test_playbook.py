"""A playbook: answers to a route of a closed set, or to a person, and never to the nearest thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from classifier.answers import Answers, BooleanAnswer, ChoiceAnswer, Refusal
from classifier.decision import Branch
from classifier.errors import ConfigurationError, ModelUnavailable, PolicyError
from classifier.playbook import Outbox, Playbook, Review, Webhook
from classifier.questions import Choice, Questions


class Kind(Questions):
    kind: Choice[Literal["bug", "feature", "question"]] = Choice(
        {"bug": None, "feature": None, "question": None}
    )


def answered(label: str, probability: float = 1.0) -> Kind:
    others = [other for other in Kind.kind.options if other != label]
    rest = (1 - probability) / max(len(others), 1)
    return Kind({"kind": ChoiceAnswer(label, {label: probability, **dict.fromkeys(others, rest)})})


def by_label(answers: Kind) -> str | Review:
    return answers.kind.choice_or(Review("refused"))


def always(chosen: Any) -> Callable[[Kind], Any]:
    def route(answers: Kind) -> Any:
        return chosen

    return route


def playbook(route: Any = by_label, **fields: Any) -> Playbook[Any]:
    given: dict[str, Any] = {
        "id": "tickets",
        "classifier": "kind",
        "routes": ("bug", "feature", "question"),
        "destinations": {"*": Outbox("out.jsonl")},
        "gates": {},
        **fields,
    }
    return Playbook(route=route, **given)


async def test_a_label_of_the_set_goes_to_its_route_whatever_the_order() -> None:
    for routes in (("bug", "feature", "question"), ("question", "feature", "bug")):
        for label in routes:
            assert await playbook(routes=routes).branch(answered(label)) == Branch("route", label)


@pytest.mark.parametrize("label", ["bugs", "BUG", "security", "bu", " bug", "bug ", ""])
async def test_a_label_outside_of_the_set_goes_to_a_person_and_to_no_route(label: str) -> None:
    found = await playbook(always(label)).branch(answered("bug"))
    assert found == Branch("review", None, ("not_in_set",))


async def test_no_label_matches_by_its_beginning() -> None:
    routes = ("refund_denied",)
    found = await playbook(always("refund"), routes=routes).branch(answered("bug"))
    assert found == Branch("review", None, ("not_in_set",))


async def test_an_answer_the_author_did_not_think_of_goes_where_the_author_says() -> None:
    def route(answers: Kind) -> str | Review:
        match answers.kind:
            case ChoiceAnswer(choice="bug" | "feature" as label):
                return label
            case ChoiceAnswer() | Refusal():
                return Review("default")

    assert await playbook(route).branch(answered("question")) == Branch("review", None, ("default",))
    assert await playbook(route).branch(Kind({"kind": Refusal()})) == Branch("review", None, ("default",))


async def test_a_closed_gate_sends_the_route_to_a_person_as_a_suggestion() -> None:
    gated = playbook(gates={"kind": 0.6})
    assert await gated.branch(answered("bug", 0.22)) == Branch("review", "bug", ("low_probability:kind",))
    assert await gated.branch(answered("bug", 0.5999)) == Branch("review", "bug", ("low_probability:kind",))
    assert await gated.branch(answered("bug", 0.6)) == Branch("route", "bug")


async def test_all_reasons_for_a_review_are_kept() -> None:
    gated = playbook(always(Review("vip", "bug")), gates={"kind": 0.6})
    assert await gated.branch(answered("bug", 0.2)) == Branch(
        "review", "bug", ("vip", "low_probability:kind")
    )
    gated = playbook(always("other"), gates={"kind": 0.6})
    assert await gated.branch(answered("bug", 0.2)) == Branch(
        "review", None, ("not_in_set", "low_probability:kind")
    )


async def test_a_route_function_may_be_async() -> None:
    async def route(answers: Kind) -> str:
        return "bug"

    assert await playbook(route).branch(answered("bug")) == Branch("route", "bug")


@pytest.mark.parametrize("returned", [None, True, 1, ["bug"], ChoiceAnswer("bug")])
async def test_what_is_neither_a_route_nor_a_review_is_an_error_of_the_policy(returned: Any) -> None:
    with pytest.raises(PolicyError, match="'tickets' returned a"):
        await playbook(always(returned)).branch(answered("bug"))


async def test_a_route_function_that_raises_is_an_error_of_the_policy_without_content() -> None:
    def route(answers: Kind) -> str:
        raise ValueError("card 4111")

    with pytest.raises(PolicyError, match="raised ValueError") as raised:
        await playbook(route).branch(answered("bug"))
    assert "4111" not in str(raised.value)
    assert not raised.value.retryable

    def ours(answers: Kind) -> str:
        raise ModelUnavailable("down")

    with pytest.raises(ModelUnavailable):
        await playbook(ours).branch(answered("bug"))


@pytest.mark.parametrize("reason", ["", "  ", "x" * 101])
async def test_a_reason_is_a_short_code(reason: str) -> None:
    with pytest.raises(ConfigurationError, match="reason"):
        await playbook(always(Review(reason))).branch(answered("bug"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": " "}, "must not be blank"),
        ({"routes": ()}, "has no routes"),
        (
            {"destinations": {"bug": Outbox("x"), "feature": Outbox("x")}},
            "no destination for route 'question'",
        ),
        ({"destinations": {"*": Outbox("x"), "bugs": Outbox("x")}}, "delivers 'bugs', which is not one"),
        *(
            ({"destinations": {"*": Webhook(url)}}, "must begin with http:// or https:// and name a host")
            for url in (
                "",
                "hooks.example.com/x",
                "ftp://example.com",
                "https://",
                "http://[",
                "http://h:99999",
            )
        ),
        *(
            ({"destinations": {"*": Webhook("https://example.com", timeout=seconds)}}, "at most 240 seconds")
            for seconds in (0, -1, 241, float("nan"), float("inf"))
        ),
    ],
)
def test_a_playbook_that_cannot_work_says_why(fields: dict[str, Any], problem: str) -> None:
    assert problem in " ".join(playbook(**fields).problems())


def test_a_destination_of_its_own_wins_over_the_one_for_all() -> None:
    found = playbook(destinations={"bug": Outbox("bugs"), "*": Outbox("rest")})
    assert list(found.problems()) == []
    assert found.destination("bug") == Outbox("bugs")
    assert found.destination("feature") == Outbox("rest")


async def test_plain_answers_of_a_dictionary_are_routed_as_well() -> None:
    def route(answers: Answers) -> str:
        return "bug" if answers.boolean("b").at_least(0.5, unsure=False) else "question"

    assert await playbook(route).branch(Answers({"b": BooleanAnswer(0.9)})) == Branch("route", "bug")
