"""The documents say what is true: variables, command lines, targets, snippets, links."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import cli
from tests.markdown import Block, Document, documents
from tests.tree import ROOT, Module, shipped

DOCUMENTS = documents()
SHELL = ("sh", "bash", "shell", "console")
TEMPORALS_OWN = re.compile(r"TEMPORAL_[A-Z_]+")
"""Read by `temporalio.envconfig`, which documents them; we mention those that people need."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_ENDS_COMMAND = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/deployment.md"]
)
def test_the_documents_that_people_look_for_exist(name: str) -> None:
    path = ROOT / name
    assert path.is_file(), f"{name} is missing"
    assert len(path.read_text(encoding="utf-8").split()) > 100, f"{name} says next to nothing"


def test_every_variable_that_is_read_is_documented_and_no_other() -> None:
    read = {name for module in shipped() for name in variables_of(module)}
    deployed = set(
        re.findall(r"^(?:# )?([A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    )
    documented = {name for document in DOCUMENTS for name in document.first_column("variable")}
    untold = sorted(read - documented)
    assert untold == [], f"add them to a table whose first column is headed `variable`: {untold}"
    unknown = {name for name in documented - read - deployed if not TEMPORALS_OWN.fullmatch(name)}
    assert unknown == set(), "nothing reads them"


def test_the_scan_for_variables_finds_what_is_known_to_be_read() -> None:
    read = {name for module in shipped() for name in variables_of(module)}
    assert {"CLASSIFIER_HOME", "CLASSIFIER_APP", "DATABASE_URL", "CLASSIFIER_LOG_LEVEL"} <= read


def test_every_command_line_in_a_code_block_is_a_good_one() -> None:
    for block in (block for document in DOCUMENTS for block in document.blocks(*SHELL)):
        for words in commands_in(block.code):
            complaint = parsed(words, whole=True)
            assert complaint is None, f"{block}: {shlex.join(words)}: {complaint}"


def test_every_command_that_the_text_names_exists() -> None:
    for document in DOCUMENTS:
        for span in document.spans():
            for words in commands_in(span):
                complaint = parsed(words, whole=False)
                assert complaint is None, f"{document}: {span}: {complaint}"


def test_every_command_is_documented() -> None:
    told = {
        " ".join(takewhile(lambda word: word.isalpha(), words[1:3]))
        for document in DOCUMENTS
        for text in (*document.spans(), *(block.code for block in document.blocks(*SHELL)))
        for words in commands_in(text)
    }
    missing = [name for name in command_names() if not any(each.startswith(name) for each in told)]
    assert missing == [], f"no document has these: {missing}"


def test_the_help_teaches_commands_that_exist() -> None:
    teaching = cli.app.info.help or ""
    commands = list(
        commands_in(
            re.sub(r" {3,}\S.*$", "", teaching.replace("    classifier", "classifier"), flags=re.MULTILINE)
        )
    )
    assert commands
    for words in commands:
        assert parsed(words, whole=True) is None, shlex.join(words)


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        texts = (*document.spans(), *(block.code for block in document.blocks(*SHELL)))
        named = {
            target for text in texts for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", text, re.MULTILINE)
        }
        assert named <= targets, f"{document}: {named - targets}"


def test_every_python_snippet_compiles() -> None:
    for block in snippets():
        compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_snippets_that_are_whole_files_run(tmp_path: Path) -> None:
    """A snippet is a whole file where its first line is a comment with the file's name."""
    written: list[tuple[Block, str]] = []
    for block in snippets():
        name = re.match(r"# ([\w/]+\.py)\b", block.code)
        if name:
            path = tmp_path / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
            written.append((block, name[1]))
    for block, file in written:
        code = f"import runpy, sys; sys.path.insert(0, '.'); runpy.run_path({file!r}, run_name='snippet')"
        command = [sys.executable, "-W", "error", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}: {done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_relative_links_lead_somewhere(document: Document) -> None:
    for link in document.links():
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.path.parent / name).resolve() if name else document.path
        assert target.exists(), f"{document} points to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in Document(target).anchors(), f"{document} points to {link}"


def snippets() -> Iterator[Block]:
    """Every Python snippet."""
    return (block for document in DOCUMENTS for block in document.blocks("python", "py"))


def variables_of(module: Module) -> Iterator[str]:
    """The environment variables that a module reads, proxies aside, whose names are everybody's."""
    for node in module.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=where, attr="get"), args=[ast.Constant(value=str(name)), *_]
            ) if is_environ(where):
                yield name
            case ast.Subscript(value=where, slice=ast.Constant(value=str(name))) if is_environ(where):
                yield name
            case ast.keyword(arg=str(argument), value=value) if "variable" in argument:
                yield from names_in(value)
            case ast.Assign(targets=[ast.Name(id=constant)], value=value) if "VARIABLE" in constant:
                yield from names_in(value)
            case _:
                pass


def is_environ(node: ast.expr) -> bool:
    """Whether an expression is an environment."""
    return ast.unparse(node).rpartition(".")[2] in {"environ", "_environ"}


def names_in(node: ast.expr) -> Iterator[str]:
    """The names of variables in an expression."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and _VARIABLE.fullmatch(each.value):
            yield each.value


@functools.cache
def whole_command() -> Any:
    """The command with all of its groups, as click has it."""
    return get_command(cli.app)


def commands_in(text: str) -> Iterator[list[str]]:
    """The command lines of ours in a piece of text, without prompt, variables, pipes and comments."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        command = re.match(r"(?:\$ )?(?:\w+=\S* )*(?:\.venv/bin/)?(classifier(?: .*)?)$", line.strip())
        if command:
            yield list(
                takewhile(lambda word: word not in _ENDS_COMMAND, shlex.split(command[1], comments=True))
            )


def parsed(words: list[str], *, whole: bool) -> str | None:
    """What the command line says about a command without running it; None where it would run."""
    command: Any = whole_command()
    names = list(takewhile(lambda word: not word.startswith("-"), words[1:]))
    depth = 0
    while depth < len(names) and isinstance(command, TyperGroup):
        command = command.commands.get(names[depth])
        depth += 1
    if command is None:
        return f"there is no command {' '.join(names[:depth])!r}"
    try:
        command.make_context("classifier", words[1 + depth :], resilient_parsing=not whole)
    except Exception as error:  # noqa: BLE001 - what is raised is typer's private affair
        return str(error) or type(error).__name__
    return None


def command_names() -> Iterator[str]:
    """Every command, with its group."""
    for name, command in whole_command().commands.items():
        if isinstance(command, TyperGroup):
            yield from (f"{name} {inner}" for inner in command.commands)
        else:
            yield name
