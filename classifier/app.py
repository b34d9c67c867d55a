"""What a project registers, and its resolution when a worker starts. Pure.

Everything has a key and an id and both resolve; whatever is ambiguous, unknown, missing or unsupported is
found when the app is resolved, all at once.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from classifier.agent import Agent, Tool
from classifier.agent_checks import agent_problems
from classifier.classifier import Classifier, unsupported_questions
from classifier.decision import Phase
from classifier.errors import ConfigurationError
from classifier.gates import check_gates
from classifier.models.protocol import DecisionModel
from classifier.playbook import Playbook
from classifier.processor import GUARDED_PHASES, ClassifierProcessor
from classifier.tracing import Tracer, installed

T = TypeVar("T")


class Named(Protocol):
    """Anything with an id."""

    @property
    def id(self) -> str:
        """Unique among its kind in an app."""
        ...


N = TypeVar("N", bound=Named)
Registered: TypeAlias = Mapping[str, N] | Iterable[N]


class App:
    """Declares models, classifiers, processors, playbooks, agents and tools by key and id.

    Args:
        models: By key.
        classifiers: By key, or a list whose ids are the keys.
        processors: By key, or a list whose ids are the keys.
        playbooks: By key, or a list whose ids are the keys.
        agents: By key, or a list whose ids are the keys.
        tools: By key, or a list whose ids are the keys; agents may name them.
        require_guard: Phases that a processor must guard, or the app does not start: one that declares the
            phase and enforces its policy.
    """

    def __init__(
        self,
        *,
        models: Mapping[str, DecisionModel] | None = None,
        classifiers: Registered[Classifier[Any]] = (),
        processors: Registered[ClassifierProcessor[Any]] = (),
        playbooks: Registered[Playbook[Any]] = (),
        agents: Registered[Agent] = (),
        tools: Registered[Tool] = (),
        require_guard: Sequence[Phase] = (),
    ) -> None:
        self.models = dict(models or {})
        self.classifiers = _keyed(classifiers)
        self.processors = _keyed(processors)
        self.playbooks = _keyed(playbooks)
        self.agents = _keyed(agents)
        self.tools = _keyed(tools)
        self.require_guard = tuple(require_guard)

    def resolve(self, environ: Mapping[str, str], *, tracer: Tracer | None = None) -> ResolvedApp:
        """Looks everything up and gives models their keys from `environ`.

        Args:
            environ: The environment.
            tracer: Opens a span for every classifier call; by default OpenTelemetry's, where installed.

        Raises:
            ConfigurationError: Lists every problem, one a line.
        """
        problems = list(self.problems(environ))
        if problems:
            raise ConfigurationError(
                "the app cannot start:\n" + "\n".join(f"- {problem}" for problem in problems)
            )
        classifiers = self._bound_classifiers(installed() if tracer is None else tracer)
        processors = {name: _bound(each, classifiers) for name, each in _index(self.processors).items()}
        tools = _index(self.tools)
        agents = {name: agent.bound(tools) for name, agent in _index(self.agents).items()}
        return ResolvedApp(self._all_models(), classifiers, _index(self.playbooks), processors, agents)

    def problems(self, environ: Mapping[str, str]) -> Iterator[str]:
        """Every reason why this app cannot start, one sentence each; also configures the models."""
        for model in self._all_models():
            yield from model.configure(environ)
        yield from _duplicates("classifier", list(self._all_classifiers()))
        yield from _duplicates("processor", self.processors)
        yield from _duplicates("playbook", self.playbooks)
        yield from _duplicates("agent", self.agents)
        yield from _duplicates("tool", self.tools)
        for _, classifier in self._all_classifiers():
            yield from self._classifier_problems(classifier)
        for _, processor in self.processors:
            yield from self._processor_problems(processor)
        for phase in self.require_guard:
            yield from self._guard_problems(phase)
        for _, playbook in self.playbooks:
            yield from playbook.problems()
            yield from playbook.unset(environ)
            yield from self._playbook_problems(playbook, f"playbook {playbook.id!r}")
            if playbook.shadow is not None:
                shadow = playbook.shadow.of(playbook)
                yield from self._playbook_problems(shadow, f"the shadow of playbook {playbook.id!r}")
        yield from agent_problems(self.agents, self.tools, _index(self.processors), environ)

    def _classifier_problems(self, classifier: Classifier[Any]) -> Iterator[str]:
        model = self._model(classifier)
        if model is None:
            known = ", ".join(self.models) or "none"
            yield f"classifier {classifier.id!r} names the model {classifier.model!r}; registered: {known}"
        elif classifier.questions is not None:
            unsupported = unsupported_questions(model, classifier.questions)
            if unsupported is not None:
                yield f"classifier {classifier.id!r}: {unsupported}"

    def _processor_problems(self, processor: ClassifierProcessor[Any]) -> Iterator[str]:
        classifier = _lookup(_index(self.classifiers), processor.classifier)
        if classifier is None:
            known = ", ".join(_index(self.classifiers)) or "none"
            named = processor.classifier
            yield f"processor {processor.id!r} names the classifier {named!r}; registered: {known}"
            return
        try:
            processor.bound(classifier)
        except ConfigurationError as error:
            yield str(error)

    def _guard_problems(self, phase: Phase) -> Iterator[str]:
        if phase not in GUARDED_PHASES:
            yield f"require_guard names the phase {phase!r}; there are {', '.join(GUARDED_PHASES)}"
            return
        declared = [processor for _, processor in self.processors if phase in (processor.phases or ())]
        if not declared:
            yield f"require_guard asks for a guard of {phase}; no processor declares that phase"
        elif all(processor.mode == "monitor" for processor in declared):
            named = ", ".join(repr(processor.id) for processor in declared)
            yield f"{phase} is only monitored, by {named}, and require_guard asks for a guard"

    def _playbook_problems(self, playbook: Playbook[Any], called: str) -> Iterator[str]:
        classifier = _lookup(_index(self.classifiers), playbook.classifier)
        if classifier is None:
            known = ", ".join(_index(self.classifiers)) or "none"
            named = playbook.classifier
            yield f"{called} names the classifier {named!r}; registered: {known}"
        elif classifier.questions is None:
            yield f"{called} needs a classifier with questions; {classifier.id!r} has none"
        else:
            try:
                check_gates(playbook.gates, classifier.questions)
            except ConfigurationError as error:
                yield f"{called}: {error}"

    def _all_classifiers(self) -> Iterator[tuple[str, Classifier[Any]]]:
        yield from self.classifiers
        registered = {id(classifier) for _, classifier in self.classifiers}
        for inline in self._used_classifiers():
            if isinstance(inline, Classifier) and id(inline) not in registered:
                registered.add(id(inline))
                yield inline.id, inline

    def _used_classifiers(self) -> Iterator[Classifier[Any] | str]:
        yield from (processor.classifier for _, processor in self.processors)
        for _, playbook in self.playbooks:
            yield playbook.classifier
            if playbook.shadow is not None and playbook.shadow.classifier is not None:
                yield playbook.shadow.classifier

    def _all_models(self) -> Sequence[DecisionModel]:
        inline = [classifier.model for _, classifier in self._all_classifiers()]
        models = [*self.models.values(), *(model for model in inline if not isinstance(model, str))]
        return list({id(model): model for model in models}.values())

    def _model(self, classifier: Classifier[Any]) -> DecisionModel | None:
        return self.models.get(classifier.model) if isinstance(classifier.model, str) else classifier.model

    def _bound_classifiers(self, tracer: Tracer) -> dict[str, Classifier[Any]]:
        bound: dict[str, Classifier[Any]] = {}
        for key, classifier in self._all_classifiers():
            model = self._model(classifier)
            assert model is not None
            bound[key] = bound[classifier.id] = classifier.bound(model, tracer)
        return bound


class ResolvedApp:
    """An app whose names are looked up and whose models are configured."""

    def __init__(
        self,
        models: Sequence[DecisionModel],
        classifiers: Mapping[str, Classifier[Any]],
        playbooks: Mapping[str, Playbook[Any]],
        processors: Mapping[str, ClassifierProcessor[Any]],
        agents: Mapping[str, Agent] = MappingProxyType({}),
    ) -> None:
        self._models = models
        self.classifiers = _Lookup("classifier", classifiers)
        self.processors = _Lookup("processor", processors)
        self.playbooks = _Lookup("playbook", playbooks)
        self.agents = _Lookup("agent", agents)

    def classifier_of(self, playbook: Playbook[Any]) -> Classifier[Any]:
        """The classifier a playbook asks."""
        reference = playbook.classifier
        return self.classifiers[reference if isinstance(reference, str) else reference.id]

    async def aclose(self) -> None:
        """Closes every model's connections."""
        for model in self._models:
            await model.aclose()


class _Lookup(Generic[T]):
    """Registered things by key or id; an unknown name raises a `ConfigurationError` that lists the known."""

    def __init__(self, what: str, known: Mapping[str, T]) -> None:
        self._what = what
        self._known = known

    def __getitem__(self, name: str) -> T:
        found = self._known.get(name)
        if found is None:
            known = ", ".join(self._known) or "none"
            raise ConfigurationError(f"there is no {self._what} {name!r}; registered: {known}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)


ENTRY_POINTS = "temporal_classifier.apps"
"""The group under which installed packages name their apps and playbooks."""


@dataclass(frozen=True, slots=True, order=True)
class Installed:
    """An app that an installed package offers.

    Attributes:
        name: What it is called by.
        reference: Where it is, as `module:name`.
        package: Who offers it.
    """

    name: str
    reference: str
    package: str


def installed_apps() -> list[Installed]:
    """What installed packages offer, by name; nothing of it is imported."""
    found = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return sorted(
        {
            Installed(each.name, f"{each.module}:{each.attr}", each.dist.name if each.dist else "?")
            for each in found
        }
    )


def load_app(reference: str) -> App:
    """The app that is named: as `module:name`, or by the name under which a package offers it.

    What is found is an `App`, a `Playbook` that stands for itself, or a function without arguments that makes
    one of them.

    Raises:
        ConfigurationError: The reference is malformed, or there is no such module, name or app.
    """
    if ":" not in reference:
        return load_app(_installed(reference).reference)
    module_name, _, name = reference.partition(":")
    if not (module_name and name) or module_name.startswith("."):
        raise ConfigurationError(f"an app is named as module:name, not {reference!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the app {reference!r} cannot be imported: {error}") from error
    found: Any = getattr(module, name, None)
    made: Any = found() if callable(found) and not isinstance(found, type) else found
    if isinstance(made, Playbook):
        return App(playbooks=list[Any]([made]))
    if not isinstance(made, App):
        raise ConfigurationError(f"{reference!r} is not an App; define `{name} = App(...)` in {module_name}")
    return made


def _installed(name: str) -> Installed:
    every = installed_apps()
    found = [each for each in every if each.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        packages = " and ".join(each.package for each in found)
        raise ConfigurationError(f"{packages} both offer an app {name!r}; name it as module:name")
    known = ", ".join(sorted({each.name for each in every})) or "none"
    raise ConfigurationError(
        f"an app is named as module:name, or by an entry point of the group {ENTRY_POINTS} "
        f"(installed: {known}), not {name!r}"
    )


def _keyed(registered: Registered[N]) -> list[tuple[str, N]]:
    if isinstance(registered, Mapping):
        return list(cast("Mapping[str, N]", registered).items())
    return [(thing.id, thing) for thing in registered]


def _index(registered: Iterable[tuple[str, N]]) -> dict[str, N]:
    return {name: thing for key, thing in registered for name in (key, thing.id)}


def _lookup(known: Mapping[str, N], reference: N | str) -> N | None:
    return known.get(reference) if isinstance(reference, str) else reference


def _bound(
    processor: ClassifierProcessor[Any], classifiers: Mapping[str, Classifier[Any]]
) -> ClassifierProcessor[Any]:
    reference = processor.classifier
    return processor.bound(classifiers[reference if isinstance(reference, str) else reference.id])


def _duplicates(what: str, registered: Sequence[tuple[str, Named]]) -> Iterator[str]:
    seen: dict[str, tuple[str, Named]] = {}
    for key, thing in registered:
        for name in {key, thing.id}:
            earlier = seen.setdefault(name, (key, thing))
            if earlier[1] is not thing:
                yield (
                    f"two {what}s answer to {name!r}: key {earlier[0]!r} (id {earlier[1].id!r}) "
                    f"and key {key!r} (id {thing.id!r})"
                )
