"""What keeps agents from starting: unknown names, processors for other phases, missing keys. Pure."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from classifier.agent import Agent, Tool
from classifier.decision import Phase
from classifier.errors import ConfigurationError
from classifier.processor import ClassifierProcessor

Processors: TypeAlias = Mapping[str, ClassifierProcessor[Any]]


def agent_problems(
    agents: Sequence[tuple[str, Agent]],
    tools: Sequence[tuple[str, Tool]],
    processors: Processors,
    environ: Mapping[str, str],
) -> Iterator[str]:
    """Every reason why the agents of an app cannot start, one sentence each."""
    known = {name: tool for key, tool in tools for name in (key, tool.id)}
    for _, tool in tools:
        yield from _tool_problems(tool, processors)
    if agents and importlib.util.find_spec("openai") is None:
        yield "agents need the openai SDK; install temporal-classifier[chat]"
    for _, agent in agents:
        owner = f"agent {agent.id!r}"
        yield from agent.problems(environ)
        for phase in ("input", "stream", "output"):
            yield from _processor_problems(owner, getattr(agent, phase), phase, processors)
        yield from _tools_of(agent, known, processors)


def _tools_of(agent: Agent, known: Mapping[str, Tool], processors: Processors) -> Iterator[str]:
    seen: set[str] = set()
    for each in agent.tools:
        tool = known.get(each) if isinstance(each, str) else each
        if tool is None:
            yield f"agent {agent.id!r} names the tool {each!r}; registered: {', '.join(known) or 'none'}"
            continue
        if tool.id in seen:
            yield f"agent {agent.id!r} has two tools {tool.id!r}"
        seen.add(tool.id)
        if not isinstance(each, str) and each not in known.values():
            yield from _tool_problems(tool, processors)


def _tool_problems(tool: Tool, processors: Processors) -> Iterator[str]:
    yield from tool.problems()
    owner = f"tool {tool.id!r}"
    yield from _processor_problems(owner, tool.arguments, "output", processors)
    yield from _processor_problems(owner, tool.results, "input", processors)


def _processor_problems(
    owner: str, names: Sequence[str], phase: Phase, processors: Processors
) -> Iterator[str]:
    if isinstance(names, str):
        yield f"{owner}: processors are a list of names, not the text {names!r}"
        return
    seen: set[str] = set()
    for name in names:
        processor = processors.get(name)
        if processor is None:
            known = ", ".join(processors) or "none"
            yield f"{owner} names the processor {name!r} for {phase}; registered: {known}"
            continue
        if processor.id in seen:
            yield f"{owner} names the processor {processor.id!r} twice for {phase}"
        seen.add(processor.id)
        try:
            processor.check_phase(phase)
        except ConfigurationError as error:
            yield f"{owner}: {error}"
