"""`classifier history retain` and `classifier history hold`: what goes with age, and what must not."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from classifier.audit.holds import Hold, list_holds, place_hold, release_hold
from classifier.audit.retention import Dropped, Emptied, drop_months, empty_contents
from classifier.audit.sealing import seal
from classifier.audit.signing import SealKey
from classifier.audit.upkeep import age_of
from classifier.errors import ConfigurationError
from classifier.values import JSON
from commands.seal_keys import public_keys, seal_key
from commands.show import print_json, say, table
from worker import Settings, hash_key, opened

NO_STUBS = (
    "no key of the seal is configured, so no stubs were left: where the history was sealed, "
    "`classifier history verify` will report these months as removed"
)


async def retain(
    settings: Settings,
    *,
    older_than: str | None,
    tenant: str | None,
    contents_older_than: str | None,
    by: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Drops months of all tenants, or empties contents of one, after an age.

    Raises:
        ConfigurationError: No age is given, or no tenant for the contents' age.
        StoreError: With a key of the seal, some of the rows could not be sealed before they are dropped.
    """
    if older_than is None and contents_older_than is None:
        raise ConfigurationError("say how old: --older-than 400d, or --tenant NAME --contents-older-than 30d")
    if (tenant is None) != (contents_older_than is None):
        raise ConfigurationError(
            "--tenant and --contents-older-than go together; months go for all tenants at once"
        )
    now = datetime.now(UTC)
    months_before = None if older_than is None else now - age_of(older_than)
    contents_before = None if contents_older_than is None else now - age_of(contents_older_than)
    dropped: Dropped | None = None
    emptied: Emptied | None = None
    key: SealKey | None = None
    async with opened(settings, temporal=False) as service:
        url = service.database_url
        if tenant is not None and contents_before is not None:
            emptied = await empty_contents(url, tenant=tenant, before=contents_before, by=by, dry_run=dry_run)
        if months_before is not None:
            key = None if dry_run else await _sealed(settings, url)
            dropped = await drop_months(url, before=months_before, by=by, key=key, dry_run=dry_run)
    unsealed = bool(dropped and dropped.months and key is None and not dry_run)
    if as_json:
        print_json(_json(dropped, emptied, dry_run=dry_run, unsealed=unsealed))
        return
    console = Console()
    if emptied is not None:
        _say_emptied(console, emptied, tenant or "", dry_run=dry_run)
    if dropped is not None:
        _say_dropped(console, dropped, dry_run=dry_run)
    if unsealed:
        say(Console(stderr=True), NO_STUBS)


async def add_hold(
    settings: Settings, *, tenant: str, resource: str | None, reason: str, by: str, as_json: bool
) -> None:
    """Places a legal hold and says its id."""
    async with opened(settings, temporal=False) as service:
        hold = await place_hold(
            service.database_url,
            hash_key=hash_key(settings),
            tenant=tenant,
            resource=resource,
            reason=reason,
            by=by,
        )
    if as_json:
        print_json(_hold_json(hold))
        return
    what = "everything" if hold.subject is None else "this person's decisions"
    say(Console(), f"{hold.hold_id} holds {what} of tenant {tenant} until it is released")


async def end_hold(settings: Settings, hold_id: str, *, tenant: str, by: str, as_json: bool) -> None:
    """Releases a legal hold.

    Raises:
        ConfigurationError: It is no id of a hold, or not one of this tenant's that is open.
    """
    try:
        wanted = uuid.UUID(hold_id)
    except ValueError as error:
        raise ConfigurationError(
            f"{hold_id!r} is not a hold's id; `classifier history hold list` prints them"
        ) from error
    async with opened(settings, temporal=False) as service:
        hold = await release_hold(service.database_url, wanted, tenant=tenant, by=by)
    if as_json:
        print_json(_hold_json(hold))
        return
    say(Console(), f"{hold.hold_id} is released; erasure and retention go on without it")


async def show_holds(settings: Settings, *, tenant: str, released: bool, as_json: bool) -> None:
    """The holds of a tenant, oldest first."""
    async with opened(settings, temporal=False) as service:
        holds = await list_holds(service.database_url, tenant, released=released)
    if as_json:
        print_json({"holds": [_hold_json(hold) for hold in holds]})
        return
    columns = ["hold", "since", "on", "reason", "by", "released"]
    Console().print(table(f"Legal holds of tenant {tenant}", columns, [_row(hold) for hold in holds]))


async def _sealed(settings: Settings, database_url: str) -> SealKey | None:
    """The key of the seal, with everything sealed that can be; None where none is configured."""
    if settings.seal_key is None and not settings.embeds_database:
        return None
    key = seal_key(settings)
    await seal(database_url, key, keys=public_keys(settings), hash_key=hash_key(settings))
    return key


def _say_dropped(console: Console, dropped: Dropped, *, dry_run: bool) -> None:
    gone = "would be dropped" if dry_run else "dropped"
    say(console, f"months {gone}: {_listed(dropped.months)}")
    for tenant, count in dropped.decisions.items():
        say(console, f"  tenant {tenant}: {count} decisions")
    for month, holds in dropped.held.items():
        say(console, f"  {month} stays: held by {_listed([str(hold) for hold in holds])}")
    if dropped.stubs:
        say(console, f"  {dropped.stubs} signed stubs stand for them in the seal")


def _say_emptied(console: Console, emptied: Emptied, tenant: str, *, dry_run: bool) -> None:
    gone = "would be emptied" if dry_run else "emptied"
    say(
        console,
        f"tenant {tenant}: contents of {emptied.contents} decisions and {emptied.events} events {gone}",
    )
    if emptied.holds:
        say(console, f"  but for what is held by {_listed([str(hold) for hold in emptied.holds])}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _json(
    dropped: Dropped | None, emptied: Emptied | None, *, dry_run: bool, unsealed: bool
) -> dict[str, JSON]:
    body: dict[str, JSON] = {"dry_run": dry_run}
    if dropped is not None:
        body["months"] = list(dropped.months)
        body["decisions"] = dict(dropped.decisions)
        body["held"] = {month: [str(hold) for hold in holds] for month, holds in dropped.held.items()}
        body["stubs"] = dropped.stubs
        body["verify_will_report_a_gap"] = unsealed
    if emptied is not None:
        body["contents"] = emptied.contents
        body["events"] = emptied.events
        body["holds"] = [str(hold) for hold in emptied.holds]
    return body


def _hold_json(hold: Hold) -> dict[str, JSON]:
    return {
        "hold_id": str(hold.hold_id),
        "tenant": hold.tenant,
        "subject": hold.subject,
        "reason": hold.reason,
        "placed_by": hold.placed_by,
        "placed_at": hold.placed_at.isoformat(),
        "released_by": hold.released_by,
        "released_at": None if hold.released_at is None else hold.released_at.isoformat(),
    }


def _row(hold: Hold) -> tuple[str, ...]:
    on = "everything" if hold.subject is None else f"person {hold.subject[:16]}"
    released = "" if hold.released_at is None else f"{hold.released_at:%Y-%m-%d} by {hold.released_by}"
    return (str(hold.hold_id), f"{hold.placed_at:%Y-%m-%d}", on, hold.reason, hold.placed_by, released)
