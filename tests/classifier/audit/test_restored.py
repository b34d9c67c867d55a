"""A history that was dumped and restored on another server: sound as it was, and sealed on above its ids."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from classifier.audit.postgres import PostgresStore
from classifier.audit.schema import upgrade
from classifier.audit.sealing import seal
from classifier.errors import StoreError
from embedded.cluster import locate
from embedded.postgres import SUPERUSER
from embedded.process import Child, Command
from embedded.stack import Stack
from embedded.state import StateFolder
from embedded.wheels import find_postgres, reachable_postgres
from tests.classifier.audit.examples import KEY, decision
from tests.classifier.audit.sealed import PUBLIC, ROWS, SEAL, kept_outside, record_all, sealed, verified
from tests.postgres import PostgresServer

AHEAD = 2000
"""Transactions that the old server has begun and the new one has not."""
SEGMENT = 1_048_576
"""Transactions of one file of `pg_xact`; a server does not start in the middle of one that it never wrote."""


@pytest.fixture
def homes() -> Generator[tuple[Path, Path]]:
    """Folders of an old server and a new one."""
    made = [Path(tempfile.mkdtemp(prefix="classifier-tests-")) for _ in range(2)]
    yield made[0], made[1]
    for each in made:
        shutil.rmtree(each, ignore_errors=True)


@asynccontextmanager
async def serving(home: Path) -> AsyncGenerator[str]:
    """The address of its database, while it runs."""
    async with Stack(home, temporal=False) as stack:
        assert stack.addresses.database_url is not None
        yield stack.addresses.database_url


async def as_superuser(home: Path, url: str, program: str, *arguments: str) -> None:
    """Runs one of PostgreSQL's programs against this database."""
    secrets, address = StateFolder(home).read_secrets(), sa.make_url(url)
    assert secrets is not None
    where = (f"--host={address.host}", f"--port={address.port}", f"--username={SUPERUSER}")
    await asyncio.to_thread(
        subprocess.run,
        [find_postgres().program(program), *where, f"--dbname={address.database}", *arguments],
        env={"PGPASSWORD": secrets.postgres},
        check=True,
    )


async def raise_transaction_id(home: Path, number: int) -> None:
    """What a person is told to do, on the server that is down."""
    cluster, log = locate(StateFolder(home)), home / "resetwal.log"
    program = reachable_postgres(find_postgres(), cluster.account).program("pg_resetwal")
    with log.open("wb") as output:
        arguments = (program, f"--next-transaction-id={number}", str(cluster.data))
        child = await Child.start(Command(arguments, output.fileno(), cluster.account))
        assert await child.wait() == 0, log.read_text()


@pytest.mark.slow
async def test_a_dump_restored_on_another_server_verifies_and_is_sealed_on_above_its_transaction_ids(
    homes: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = homes
    dump = str(tmp_path / "history.dump")
    async with serving(old) as url:
        await upgrade(url)
        async with aclosing(PostgresServer(url)) as server:
            await server.execute(
                f"DO $$ BEGIN FOR n IN 1..{AHEAD} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
            )
        store = PostgresStore(url, hash_key=KEY)
        await record_all(store)
        await store.aclose()
        await sealed(url, ROWS + 1)
        before, kept = await verified(url), await kept_outside(url)
        await as_superuser(old, url, "pg_dump", "--format=custom", f"--file={dump}")
    async with serving(new) as url:
        await upgrade(url)  # which makes the roles
        await as_superuser(new, url, "psql", "--quiet", "--command=DROP SCHEMA classifier CASCADE")
        await as_superuser(new, url, "pg_restore", "--single-transaction", dump)
        after = await verified(url, outside=kept)
        assert {name: (one.breaches, one.leaves) for name, one in after.items()} == {
            name: ((), one.leaves) for name, one in before.items()
        }
        with pytest.raises(StoreError, match="pg_resetwal"):
            await seal(url, SEAL, keys=PUBLIC, hash_key=KEY)
    await raise_transaction_id(new, SEGMENT)
    async with serving(new) as url:
        store = PostgresStore(url, hash_key=KEY)
        await store.record([decision("new")])
        await store.aclose()
        await sealed(url, 1)
        acme = (await verified(url, outside=kept))["acme"]
        assert (acme.breaches, acme.leaves, acme.unsealed) == ((), ROWS + 1, 0)
