"""`classifier migrate` and `classifier check`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from temporalio.service import RPCError

from classifier.app import ENTRY_POINTS, App, installed_apps
from classifier.audit import roles
from classifier.audit.dead_letters import count_by_tenant
from classifier.audit.partitions import ensure_partitions
from classifier.audit.schema import upgrade
from classifier.errors import ConfigurationError, StoreError
from commands.guards import agents, guards
from commands.show import print_json, say, table
from embedded.errors import EmbeddedError
from embedded.stack import Addresses, running
from worker import Settings, app_of, connect, hash_key, opened

_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: Its name.
        value: How it is configured; never a secret.
        problem: What is wrong with it, or None.
        warning: What is likely not meant, but works.
    """

    what: str
    value: str
    problem: str | None = None
    warning: str | None = None

    @property
    def mark(self) -> str:
        """One character for a person."""
        return "✗" if self.problem else "!" if self.warning else "✓"

    @property
    def said(self) -> str:
        """The worst that is to say."""
        return self.problem or self.warning or self.value


async def migrate(settings: Settings, console: Console) -> None:
    """Brings the schema up to date and makes the coming months' partitions."""
    if settings.database_url is None:
        async with opened(settings, temporal=False):
            say(console, f"the database in {settings.home} is up to date")
        return
    await upgrade(settings.database_url)
    await ensure_partitions(settings.database_url)
    say(console, "the database is up to date")


async def check(settings: Settings, *, as_json: bool) -> bool:
    """Prints what is configured and reachable; whether all is well."""
    findings = [finding async for finding in _findings(settings)]
    if as_json:
        print_json(
            {
                "ok": not any(finding.problem for finding in findings),
                "findings": [
                    {"what": each.what, "value": each.value, "problem": each.problem, "warning": each.warning}
                    for each in findings
                ],
            }
        )
    else:
        rows = [(finding.mark, finding.what, finding.said) for finding in findings]
        Console().print(table("Check", ["", "what", ""], rows))
    return not any(finding.problem for finding in findings)


async def _findings(settings: Settings) -> AsyncIterator[Finding]:
    folder, addresses = _state_folder(settings.home)
    yield folder
    for finding in _app(settings):
        yield finding
    yield _installed()
    yield _encryption(settings)
    if settings.metrics is not None:
        yield Finding("metrics", str(settings.metrics))
    if settings.version is not None:
        yield Finding("version", settings.version.to_canonical_string())
    yield await _temporal(settings, addresses)
    async for finding in _database(settings, addresses):
        yield finding


def _state_folder(home: Path) -> tuple[Finding, Addresses]:
    """Looks without making it; the nearest folder that is there says whether that would go well."""
    try:
        addresses = running(home) or Addresses()
    except EmbeddedError as error:
        return Finding("state folder", str(home), str(error)), Addresses()
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("state folder", str(home)), addresses
    problem = f"{home} cannot be written; see CLASSIFIER_HOME"
    return Finding("state folder", str(home), problem), addresses


def _app(settings: Settings) -> list[Finding]:
    try:
        declared = app_of(settings)
    except ConfigurationError as error:
        return [Finding("app", settings.app, str(error))]
    problems = list(declared.problems(settings.environ))
    if problems:
        return [Finding("app", settings.app, problem) for problem in problems]
    playbooks = ", ".join(key for key, _ in declared.playbooks) or "none"
    found = [Finding("app", f"{settings.app}; playbooks: {playbooks}"), *_processors(settings, declared)]
    resolved = declared.resolve(settings.environ)
    return [*found, *(Finding(f"agent {name}", what) for name, what in agents(resolved))]


def _installed() -> Finding:
    found = ", ".join(f"{each.name} ({each.package})" for each in installed_apps())
    return Finding("installed apps", found or f"none; packages offer them as {ENTRY_POINTS}")


def _processors(settings: Settings, declared: App) -> list[Finding]:
    found = list(guards(declared.resolve(settings.environ)))
    if not found:
        return [Finding("processors", "none")]
    return [Finding(f"processor {guard.id}", guard.description, warning=guard.warning) for guard in found]


def _encryption(settings: Settings) -> Finding:
    keys = settings.codec_keys
    if keys is None:
        return Finding("encryption", "off: Temporal stores what runs are given as it is")
    first, *others = keys.ids
    value = f"on, with key {first}" + (f"; decrypts {', '.join(others)} too" if others else "")
    if settings.codec_plaintext == "refuse":
        return Finding("encryption", value)
    warning = f"{value}; plain text is accepted, which is for the time of the change alone"
    return Finding("encryption", value, warning=warning)


async def _temporal(settings: Settings, addresses: Addresses) -> Finding:
    if settings.embeds_temporal and addresses.temporal_address is None:
        return Finding("Temporal", "embedded; starts when it is needed")
    where = addresses.temporal_address if settings.embeds_temporal else settings.temporal.get("target_host")
    try:
        async with asyncio.timeout(_PATIENCE):
            client = await connect(settings, addresses)
            await client.service_client.check_health()
    except (ConfigurationError, RPCError, TimeoutError):
        return Finding("Temporal", str(where), f"Temporal does not answer at {where}; see TEMPORAL_ADDRESS")
    return Finding("Temporal", f"{where}, namespace {client.namespace}")


async def _database(settings: Settings, addresses: Addresses) -> AsyncIterator[Finding]:
    url = settings.database_url or addresses.database_url
    if url is None:
        yield Finding("database", "embedded; starts when it is needed")
        return
    problems = await roles.problems(url)
    if not settings.embeds_database:
        try:
            hash_key(settings)
        except ConfigurationError as error:
            problems.append(str(error))
    for problem in problems:
        yield Finding("database", "", problem)
    if not problems:
        yield Finding("database", "reachable, schema up to date, restricted roles")
        yield await _dead_letters(url)


async def _dead_letters(url: str) -> Finding:
    try:
        counts = await count_by_tenant(url, within=_PATIENCE)
    except StoreError as error:
        return Finding("dead letters", "", str(error))
    if not counts:
        return Finding("dead letters", "none")
    value = ", ".join(f"{tenant}: {count}" for tenant, count in counts.items())
    return Finding("dead letters", value, warning=f"{value}; see `classifier deadletters list`")
