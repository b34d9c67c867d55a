"""Apps with an agent, for `classifier check`: one that is right, and one whose names nobody registered."""

from __future__ import annotations

from classifier.agent import Agent, LanguageModel, Tool
from classifier.app import App
from tests.agents.support import guarding

MODEL = LanguageModel("tested", base_url="http://127.0.0.1:9/v1")
PROCESSORS = [
    guarding("topic", "bad", phases=("input",)),
    guarding("safety", "bad", phases=("stream",), hold_back=40),
    guarding("civil", "bad"),
]


def helper(**options: object) -> Agent:
    pay = Tool("pay", "orders.pay", needs_approval=True, arguments=["civil"], results=["civil"])
    given = {"input": ["topic"], "stream": ["safety"], "tools": [pay, Tool("look", "orders.look")], **options}
    return Agent("helper", model=MODEL, **given)  # type: ignore[arg-type] # a test's options are its own


app = App(processors=PROCESSORS, agents=[helper()])
misspelt = App(processors=PROCESSORS, agents=[helper(output=["civl"], tools=["refnd"])])
