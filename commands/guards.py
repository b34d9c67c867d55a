"""Which processor guards what, agents included: shown by `classifier check` and when a worker starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from classifier.agent import Agent, Tool
from classifier.app import ResolvedApp
from classifier.classifier import Classifier
from classifier.processor import ClassifierProcessor


@dataclass(frozen=True, slots=True)
class Guard:
    """A registered processor as an operator sees it.

    Attributes:
        id: Its id.
        description: Phases, classifier, model and options.
        warning: What is likely not meant, or None.
    """

    id: str
    description: str
    warning: str | None


def guards(app: ResolvedApp) -> Iterator[Guard]:
    """Every processor of an app, in the order they are declared."""
    seen: set[str] = set()
    for name in app.processors:
        processor = app.processors[name]
        if processor.id not in seen:
            seen.add(processor.id)
            yield Guard(processor.id, "; ".join(_options(processor)), stream_warning(processor))


def agents(app: ResolvedApp) -> Iterator[tuple[str, str]]:
    """Every agent of an app, by id, with its model, its tools and what guards each phase."""
    seen: set[str] = set()
    for name in app.agents:
        agent = app.agents[name]
        if agent.id not in seen:
            seen.add(agent.id)
            yield agent.id, "; ".join(_parts(agent))


def _parts(agent: Agent) -> Iterable[str]:
    yield f"model {agent.model.name}"
    for phase in ("input", "stream", "output"):
        yield f"{phase}: {', '.join(getattr(agent, phase)) or 'unguarded'}"
    tools = [_tool(tool) for tool in agent.tools if isinstance(tool, Tool)]
    yield f"tools: {', '.join(tools) or 'none'}"


def _tool(tool: Tool) -> str:
    kept = [f"arguments: {' '.join(tool.arguments)}"] if tool.arguments else []
    kept += [f"results: {' '.join(tool.results)}"] if tool.results else []
    kept += ["needs approval"] if tool.needs_approval else []
    return f"{tool.id} ({', '.join(kept)})" if kept else tool.id


def stream_warning(processor: ClassifierProcessor[Any]) -> str | None:
    """What is missing for streams, where a processor is meant for them."""
    meant = "stream" in (processor.phases or ()) or processor.chunk_window > 0
    if not meant or processor.hold_back or processor.coalesce:
        return None
    return (
        f"processor {processor.id!r} guards streams without hold_back and coalesce: a term split over chunks "
        "is released before it is complete, and every chunk is a call"
    )


def _options(processor: ClassifierProcessor[Any]) -> Iterable[str]:
    phases = "any phase it is called in" if processor.phases is None else ", ".join(processor.phases)
    yield f"guards {phases}"
    classifier = processor.classifier
    assert isinstance(classifier, Classifier)
    model = classifier.model if isinstance(classifier.model, str) else classifier.model.name
    yield f"classifier {classifier.id} on {model}"
    yield "lets content through when the classifier fails" if processor.error_strategy == "warn" else "strict"
    if processor.mode == "monitor":
        yield "monitors only"
    if processor.hold_back:
        yield f"holds back {processor.hold_back} characters"
    if processor.coalesce:
        yield f"coalesces {processor.coalesce.characters} characters or {processor.coalesce.seconds:g} s"
