"""The tickets of the workflow tests for `--app`: a text says by itself what the model makes of it.

What is "broken" goes to the webhook at HOOK_URL and the rest to the outbox; what is "unsure" is not sure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from classifier.answers import Answer
from classifier.models.protocol import DecisionRequest
from classifier.models.scripted import ScriptedModel
from tests.workflows import tickets


def reply(request: DecisionRequest) -> Mapping[str, Answer]:
    text = str(request.state)
    return tickets.says("technical" if "broken" in text else "billing", 0.6 if "unsure" in text else 0.95)


app = tickets.app(ScriptedModel(reply), hook=os.environ["HOOK_URL"])
