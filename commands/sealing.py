"""`classifier history seal` and `classifier history verify`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from classifier.audit import sealing, verifying
from classifier.audit.chain import Checkpoint
from classifier.audit.checkpoint_json import checkpoint_of_line, checkpoint_to_json, checkpoint_to_line
from classifier.audit.sealing import Sealed
from classifier.audit.signing import PublicKeys, SealKey
from classifier.audit.verifying import Verified
from classifier.errors import ConfigurationError, StoreError
from classifier.values import JSON
from commands.seal_keys import public_keys, seal_key
from commands.show import print_json, progress, say
from worker import Settings, hash_key, opened

_ALWAYS = (
    "rows that arrived after the last checkpoint: they are counted, and nothing is known of them",
    "whether a row was true when it was written: the seal says that it is what was sealed",
    "what somebody did who has the seal's private key",
    "who removed contents: that they are gone looks the same after an erasure and after a theft",
    "the quarantine, the accepted source events, and legal holds: they are not sealed",
)
_WITHOUT_OUTSIDE = (
    "whether the newest checkpoints were removed with all that they sealed, or a tenant with everything: "
    "keep checkpoints outside the database (seal --to FILE) and give them (--against FILE)"
)
_WITHOUT_HASH_KEY = "whether contents were changed: that needs CLASSIFIER_HASH_KEY"


async def seal(settings: Settings, to: Path | None, *, as_json: bool) -> bool:
    """Seals what has arrived, and appends checkpoints to the file; whether every tenant's chain went on.

    Raises:
        ConfigurationError: There is no key, or the file cannot be read or written.
        StoreError: The database cannot be reached, or holds other checkpoints than the file.
    """
    console = Console(stderr=True)
    async with _database(settings) as database_url:
        key, keys = seal_key(settings), public_keys(settings)
        known = _newest(to) if to is not None else {}
        if to is not None:  # before anything is signed on top of what contradicts the file
            await _append(to, database_url, known, keys)
        with progress(console, None, what="rows") as bar:
            done = await sealing.seal(
                database_url, key, keys=keys, hash_key=hash_key(settings), advance=bar.advance
            )
        if to is not None:
            await _append(to, database_url, known, keys)
    if as_json:
        tenants: list[JSON] = [_sealed(one) for one in done]
        print_json({"public_key": key.public, "key_id": key.key_id, "tenants": tenants})
    else:
        _print_sealed(done, key)
    return all(one.problem is None for one in done)


async def verify(settings: Settings, against: Path | None, *, tenant: str | None, as_json: bool) -> bool:
    """Holds the history against its seals; whether everything is as it was sealed.

    Raises:
        ConfigurationError: There is no key, or the file cannot be read.
        StoreUnavailable: The database cannot be reached.
    """
    outside = _by_tenant(against) if against is not None else {}
    secret = hash_key(settings) if settings.hash_key is not None or settings.embeds_database else None
    unknown = [*_ALWAYS]
    if against is None:
        unknown.insert(0, _WITHOUT_OUTSIDE)
    if secret is None:
        unknown.insert(0, _WITHOUT_HASH_KEY)
    async with _database(settings) as database_url:
        keys = public_keys(settings)
        with progress(Console(stderr=True), None, what="rows") as bar:
            results = verifying.verify(
                database_url, keys, hash_key=secret, outside=outside, tenant=tenant, advance=bar.advance
            )
            found = [one async for one in results]
    whole = not any(one.breaches for one in found)
    if as_json:
        tenants: list[JSON] = [_verified(one) for one in found]
        print_json({"ok": whole, "tenants": tenants, "cannot_know": list[JSON](unknown)})
    else:
        _print_verified(found, unknown)
    return whole


@contextlib.asynccontextmanager
async def _database(settings: Settings) -> AsyncGenerator[str]:
    """A given database as it is; the embedded one started, or attached to."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    async with opened(settings, temporal=False) as service:
        yield service.database_url


def _lines(path: Path) -> Iterator[Checkpoint]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield checkpoint_of_line(line)
                except ConfigurationError as error:
                    raise ConfigurationError(f"line {number} of {path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read ({type(error).__name__})") from error


def _by_tenant(path: Path) -> dict[str, list[Checkpoint]]:
    found: dict[str, list[Checkpoint]] = {}
    for checkpoint in _lines(path):
        found.setdefault(checkpoint.tenant, []).append(checkpoint)
    return found


def _newest(path: Path) -> dict[str, Checkpoint]:
    found: dict[str, Checkpoint] = {}
    for checkpoint in _lines(path) if path.exists() else ():
        last = found.get(checkpoint.tenant)
        if last is None or checkpoint.number > last.number:
            found[checkpoint.tenant] = checkpoint
    return found


async def _append(path: Path, database_url: str, known: dict[str, Checkpoint], keys: PublicKeys) -> None:
    """Appends what the file does not have, and notes it in `known`."""
    try:
        missing = sealing.missing_outside(database_url, dict(known))
        with path.open("a", encoding="utf-8") as file:
            async with contextlib.aclosing(missing):
                async for checkpoint in missing:
                    fault = keys.fault(checkpoint)
                    if fault is not None:
                        what = f"checkpoint {checkpoint.number} of tenant {checkpoint.tenant!r} {fault}"
                        raise StoreError(f"{what}; nothing more was appended to {path}")
                    file.write(checkpoint_to_line(checkpoint))
                    known[checkpoint.tenant] = checkpoint
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written ({type(error).__name__})") from error


def _sealed(one: Sealed) -> dict[str, JSON]:
    newest = None if one.checkpoint is None else checkpoint_to_json(one.checkpoint)
    return {"tenant": one.tenant, "rows": one.rows, "checkpoint": newest, "problem": one.problem}


def _print_sealed(done: Sequence[Sealed], key: SealKey) -> None:
    console = Console()
    for one in done:
        if one.problem is not None:
            say(console, f"✗ {one.tenant}: {one.problem}")
        elif one.rows and one.checkpoint is not None:
            total, number = one.checkpoint.leaves, one.checkpoint.number
            say(console, f"✓ {one.tenant}: {one.rows} rows sealed, {total} in all, checkpoint {number}")
    if not any(one.rows or one.problem for one in done):
        say(console, "nothing new to seal")
    say(console, f"key {key.key_id}; its public half, for whoever verifies: {key.public}")


def _verified(one: Verified) -> dict[str, JSON]:
    return {
        "tenant": one.tenant,
        "ok": not one.breaches,
        "sealed": one.leaves,
        "checkpoints": one.checkpoints,
        "sealed_at": None if one.sealed_at is None else one.sealed_at.isoformat(),
        "retained": one.retained,
        "erased": one.erased,
        "unsealed": one.unsealed,
        "outside": one.outside,
        "breaches": [
            {
                "fault": breach.fault,
                "kind": breach.kind,
                "id": None if breach.row_id is None else str(breach.row_id),
                "sequence": breach.sequence,
                "what": breach.sentence,
            }
            for breach in one.breaches
        ],
    }


def _print_verified(found: Sequence[Verified], unknown: Sequence[str]) -> None:
    console = Console()
    for one in found:
        say(console, _line(one))
        for breach in one.breaches[1:]:
            say(console, f"    {breach.sentence}")
    if not found:
        say(console, "there is nothing to verify")
    say(console, "This cannot know:")
    for sentence in unknown:
        say(console, f"  - {sentence}")


def _line(one: Verified) -> str:
    if one.breaches:
        return f"✗ {one.tenant}: {one.breaches[0].sentence}"
    if not one.checkpoints:
        return f"- {one.tenant}: never sealed; {one.unsealed} rows"
    parts = [f"{one.leaves} rows are as sealed", f"{one.checkpoints} checkpoints"]
    if one.sealed_at is not None:
        parts.append(f"the last of {one.sealed_at:%Y-%m-%d %H:%M:%S} UTC")
    counts = ((one.outside, "held against from outside"), (one.retained, "dropped by retention"))
    parts += [f"{count} {what}" for count, what in (*counts, (one.erased, "without contents now")) if count]
    return f"✓ {one.tenant}: {', '.join(parts)}; {one.unsealed} not sealed yet"
