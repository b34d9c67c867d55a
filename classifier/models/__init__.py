"""Every decision model by name, loaded when it is first asked for: `from classifier.models import SystemOne`.

Naming one imports its adapter and what that needs (httpx, openai, numpy), naming none imports nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from classifier.models.chat import ChatModel
    from classifier.models.clef import ClefModel
    from classifier.models.decisions import AzureDecisionsModel, DecisionsModel, LiteLLMDecisionsModel
    from classifier.models.endpoint import Timeouts
    from classifier.models.fallback import Fallback
    from classifier.models.gemini import GeminiModel
    from classifier.models.limiter import Limited
    from classifier.models.local.model import LocalModel
    from classifier.models.protocol import DecisionModel, DecisionRequest
    from classifier.models.scripted import ScriptedModel
    from classifier.models.systemone import Service, SystemOne

__all__ = [
    "AzureDecisionsModel",
    "ChatModel",
    "ClefModel",
    "DecisionModel",
    "DecisionRequest",
    "DecisionsModel",
    "Fallback",
    "GeminiModel",
    "Limited",
    "LiteLLMDecisionsModel",
    "LocalModel",
    "ScriptedModel",
    "Service",
    "SystemOne",
    "Timeouts",
]

_HOMES = {
    "classifier.models.chat": ("ChatModel",),
    "classifier.models.clef": ("ClefModel",),
    "classifier.models.decisions": ("AzureDecisionsModel", "DecisionsModel", "LiteLLMDecisionsModel"),
    "classifier.models.endpoint": ("Timeouts",),
    "classifier.models.fallback": ("Fallback",),
    "classifier.models.gemini": ("GeminiModel",),
    "classifier.models.limiter": ("Limited",),
    "classifier.models.local.model": ("LocalModel",),
    "classifier.models.protocol": ("DecisionModel", "DecisionRequest"),
    "classifier.models.scripted": ("ScriptedModel",),
    "classifier.models.systemone": ("Service", "SystemOne"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
