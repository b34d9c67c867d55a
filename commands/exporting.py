"""`classifier history export`: decisions into a file, which appears when it is whole."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from rich.console import Console

from classifier.audit.export import Exporter, ExportPage, Form, header
from classifier.audit.parquet import ParquetFile
from classifier.audit.query import DecisionQuery
from classifier.errors import ConfigurationError
from commands.labelling import labelled_lines
from commands.show import progress, say
from worker import Settings, opened

FileFormat: TypeAlias = Literal["jsonl", "csv", "parquet"]

_SUFFIXES: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
_FORMS: dict[FileFormat, Form] = {"jsonl": "jsonl", "csv": "csv", "parquet": "flat"}
_STANDARD_OUTPUT = "-"


async def export(settings: Settings, query: DecisionQuery, file: Path, form: FileFormat | None) -> None:
    """Streams what `query` asks for into `file`.

    Raises:
        ConfigurationError: The file cannot be written, or its format needs an extra.
    """
    form = form or _form_of(file)
    console = Console(stderr=True)
    with _target(file) as target, _writing(target, form) as write:
        async with opened(settings, temporal=False) as service, Exporter(service.database_url) as exporter:
            total = await exporter.count(query) if console.is_terminal else None
            done = 0
            with progress(console, total, what="decisions") as shown:
                async for page in exporter.pages(query, _FORMS[form]):
                    with _said_of(file):
                        await asyncio.to_thread(write, page)  # a slow reader of a pipe holds up nobody else
                    shown.advance(page.count)
                    done += page.count
    say(console, f"{done} decisions exported{'' if str(file) == _STANDARD_OUTPUT else f' to {file}'}")


async def export_labelled(
    settings: Settings, query: DecisionQuery, file: Path, form: FileFormat | None
) -> None:
    """Writes what people labelled among what `query` asks for, as the local model's examples.

    Raises:
        ConfigurationError: The file cannot be written, or is to be something else than JSON lines.
    """
    if (form or _form_of(file)) != "jsonl":
        raise ConfigurationError("labels are JSON lines; name the file .jsonl, or use --format jsonl")
    console = Console(stderr=True)
    with _target(file) as target, _writing(target, "jsonl") as write:
        async with opened(settings, temporal=False) as service:
            done = 0
            with progress(console, None, what="labels") as shown:
                async for page in labelled_lines(service.database_url, query):
                    with _said_of(file):
                        await asyncio.to_thread(write, page)
                    shown.advance(page.count)
                    done += page.count
    say(console, f"{done} labels exported{'' if str(file) == _STANDARD_OUTPUT else f' to {file}'}")


def _form_of(file: Path) -> FileFormat:
    if str(file) == _STANDARD_OUTPUT:
        return "jsonl"
    form = _SUFFIXES.get(file.suffix.lower())
    if form is None:
        raise ConfigurationError(
            f"{file} does not say its format; name it .jsonl, .csv or .parquet, or use --format"
        )
    return form


@contextlib.contextmanager
def _writing(target: BinaryIO, form: FileFormat) -> Generator[Callable[[ExportPage], object]]:
    if form == "parquet":
        with ParquetFile(target) as parquet:
            yield parquet.write
        return
    target.write(header(_FORMS[form]).encode())
    yield lambda page: target.write(page.text.encode())


@contextlib.contextmanager
def _target(file: Path) -> Generator[BinaryIO]:
    """A file beside the one that is meant, which takes its place when all went well."""
    if str(file) == _STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        with _said_of(file):
            target = partial.open("xb")
        with target:
            yield target
        with _said_of(file):
            partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _said_of(file: Path) -> Generator[None]:
    """Turns what the system says about a file into one sentence; a reader who left is no error of ours."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
