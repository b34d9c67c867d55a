"""What another project imports: questions, classifiers, playbooks, models, stores, the plugin.

Names are looked up when they are first asked for, so importing this loads no driver and costs nothing, in a
workflow's sandbox neither. What workflow code calls is in `classifier.temporal.workflow`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from classifier.agent import Agent, LanguageModel, Tool
    from classifier.answers import Answer, Answers, BooleanAnswer, ChoiceAnswer, Refusal, ScoreAnswer
    from classifier.app import App, ResolvedApp, load_app
    from classifier.audit.memory import MemoryStore
    from classifier.audit.postgres import PostgresStore
    from classifier.audit.query import AnswerCondition, DecisionQuery
    from classifier.audit.records import HistoryEvent, SourceEvent
    from classifier.audit.store import AuditStore, DecisionStore, EventStore
    from classifier.classifier import Classifier
    from classifier.context import RESOURCE_ID_KEY, TENANT_KEY, THREAD_ID_KEY, TRACE_ID_KEY
    from classifier.decision import Branch, Coordinates, Decision, DecisionFailure, Ids, Tripwire
    from classifier.errors import (
        AuthenticationFailed,
        ClassifierError,
        ConfigurationError,
        DecisionMismatch,
        InputTooLarge,
        InvalidAnswer,
        ModelError,
        ModelUnavailable,
        PolicyError,
        QuestionError,
        QuotaExhausted,
        RateLimited,
        RequestRejected,
        StoreError,
        StoreUnavailable,
    )
    from classifier.labels import read_labels, with_examples
    from classifier.messages import DataPart, Message, TextDelta, TextPart
    from classifier.models.chat import ChatModel
    from classifier.models.clef import ClefModel
    from classifier.models.decisions import AzureDecisionsModel, DecisionsModel, LiteLLMDecisionsModel
    from classifier.models.fallback import Fallback
    from classifier.models.gemini import GeminiModel
    from classifier.models.limiter import Limited
    from classifier.models.local.model import LocalModel
    from classifier.models.protocol import DecisionModel, DecisionRequest
    from classifier.models.scripted import ScriptedModel
    from classifier.models.systemone import SystemOne
    from classifier.playbook import Coalescing, Outbox, Playbook, Review, StartWorkflow, Webhook
    from classifier.policy import PolicyContext
    from classifier.processor import ClassifierProcessor
    from classifier.question_files import parse_questions
    from classifier.questions import Boolean, Choice, Example, Question, Questions, Score
    from classifier.result import (
        ClassifierResult,
        DecisionResponse,
        ResponseInfo,
        Rounding,
        Truncation,
        Usage,
    )
    from classifier.review_rules import Escalate, ReviewRules, TakeRoute
    from classifier.scorer import NotScorable, Scored, Scorer
    from classifier.shadow import Shadow
    from classifier.temporal.plugin import ClassifierPlugin
    from classifier.values import JSON, State

__all__ = [
    "JSON",
    "RESOURCE_ID_KEY",
    "TENANT_KEY",
    "THREAD_ID_KEY",
    "TRACE_ID_KEY",
    "Agent",
    "Answer",
    "AnswerCondition",
    "Answers",
    "App",
    "AuditStore",
    "AuthenticationFailed",
    "AzureDecisionsModel",
    "Boolean",
    "BooleanAnswer",
    "Branch",
    "ChatModel",
    "Choice",
    "ChoiceAnswer",
    "Classifier",
    "ClassifierError",
    "ClassifierPlugin",
    "ClassifierProcessor",
    "ClassifierResult",
    "ClefModel",
    "Coalescing",
    "ConfigurationError",
    "Coordinates",
    "DataPart",
    "Decision",
    "DecisionFailure",
    "DecisionMismatch",
    "DecisionModel",
    "DecisionQuery",
    "DecisionRequest",
    "DecisionResponse",
    "DecisionStore",
    "DecisionsModel",
    "Escalate",
    "EventStore",
    "Example",
    "Fallback",
    "GeminiModel",
    "HistoryEvent",
    "Ids",
    "InputTooLarge",
    "InvalidAnswer",
    "LanguageModel",
    "Limited",
    "LiteLLMDecisionsModel",
    "LocalModel",
    "MemoryStore",
    "Message",
    "ModelError",
    "ModelUnavailable",
    "NotScorable",
    "Outbox",
    "Playbook",
    "PolicyContext",
    "PolicyError",
    "PostgresStore",
    "Question",
    "QuestionError",
    "Questions",
    "QuotaExhausted",
    "RateLimited",
    "Refusal",
    "RequestRejected",
    "ResolvedApp",
    "ResponseInfo",
    "Review",
    "ReviewRules",
    "Rounding",
    "Score",
    "ScoreAnswer",
    "Scored",
    "Scorer",
    "ScriptedModel",
    "Shadow",
    "SourceEvent",
    "StartWorkflow",
    "State",
    "StoreError",
    "StoreUnavailable",
    "SystemOne",
    "TakeRoute",
    "TextDelta",
    "TextPart",
    "Tool",
    "Tripwire",
    "Truncation",
    "Usage",
    "Webhook",
    "load_app",
    "parse_questions",
    "read_labels",
    "with_examples",
]

_HOMES = {
    "classifier.agent": ("Agent", "LanguageModel", "Tool"),
    "classifier.answers": ("Answer", "Answers", "BooleanAnswer", "ChoiceAnswer", "Refusal", "ScoreAnswer"),
    "classifier.app": ("App", "ResolvedApp", "load_app"),
    "classifier.audit.memory": ("MemoryStore",),
    "classifier.audit.postgres": ("PostgresStore",),
    "classifier.audit.query": ("AnswerCondition", "DecisionQuery"),
    "classifier.audit.records": ("HistoryEvent", "SourceEvent"),
    "classifier.audit.store": ("AuditStore", "DecisionStore", "EventStore"),
    "classifier.classifier": ("Classifier",),
    "classifier.context": ("RESOURCE_ID_KEY", "TENANT_KEY", "THREAD_ID_KEY", "TRACE_ID_KEY"),
    "classifier.decision": ("Branch", "Coordinates", "Decision", "DecisionFailure", "Ids", "Tripwire"),
    "classifier.errors": (
        "AuthenticationFailed",
        "ClassifierError",
        "ConfigurationError",
        "DecisionMismatch",
        "InputTooLarge",
        "InvalidAnswer",
        "ModelError",
        "ModelUnavailable",
        "PolicyError",
        "QuestionError",
        "QuotaExhausted",
        "RateLimited",
        "RequestRejected",
        "StoreError",
        "StoreUnavailable",
    ),
    "classifier.labels": ("read_labels", "with_examples"),
    "classifier.messages": ("DataPart", "Message", "TextDelta", "TextPart"),
    "classifier.models.chat": ("ChatModel",),
    "classifier.models.clef": ("ClefModel",),
    "classifier.models.decisions": ("AzureDecisionsModel", "DecisionsModel", "LiteLLMDecisionsModel"),
    "classifier.models.fallback": ("Fallback",),
    "classifier.models.gemini": ("GeminiModel",),
    "classifier.models.limiter": ("Limited",),
    "classifier.models.local.model": ("LocalModel",),
    "classifier.models.protocol": ("DecisionModel", "DecisionRequest"),
    "classifier.models.scripted": ("ScriptedModel",),
    "classifier.models.systemone": ("SystemOne",),
    "classifier.playbook": ("Coalescing", "Outbox", "Playbook", "Review", "StartWorkflow", "Webhook"),
    "classifier.policy": ("PolicyContext",),
    "classifier.processor": ("ClassifierProcessor",),
    "classifier.question_files": ("parse_questions",),
    "classifier.questions": ("Boolean", "Choice", "Example", "Question", "Questions", "Score"),
    "classifier.result": (
        "ClassifierResult",
        "DecisionResponse",
        "ResponseInfo",
        "Rounding",
        "Truncation",
        "Usage",
    ),
    "classifier.review_rules": ("Escalate", "ReviewRules", "TakeRoute"),
    "classifier.scorer": ("NotScorable", "Scored", "Scorer"),
    "classifier.shadow": ("Shadow",),
    "classifier.temporal.plugin": ("ClassifierPlugin",),
    "classifier.values": ("JSON", "State"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
