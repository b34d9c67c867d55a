"""Making, checking and undoing the schema, and what `problems` says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from classifier.audit.engine import create_engine
from classifier.audit.postgres import PostgresStore
from classifier.audit.roles import problems
from classifier.audit.schema import check, current, downgrade, head, upgrade
from classifier.errors import ConfigurationError, StoreUnavailable
from tests.classifier.audit.examples import KEY, decision
from tests.postgres import EMPTY, PostgresServer
from tests.processes import environment, run


async def test_the_schema_goes_up_and_down_and_is_what_the_tables_describe(
    postgres_server: PostgresServer,
) -> None:
    async with postgres_server.database(EMPTY) as url:
        assert await current(url) is None
        await upgrade(url)
        assert await current(url) == head()
        assert await check(url) == []
        await downgrade(url)
        assert await current(url) is None
        await upgrade(url)
        assert await check(url) == []


async def test_a_difference_from_the_tables_is_named(database_url: str) -> None:
    engine = create_engine(database_url, role="classifier_owner", timeout=10)
    async with engine.begin() as connection:
        await connection.execute(sa.text("DROP INDEX classifier.ix_decisions_newest"))
    await engine.dispose()
    [difference] = await check(database_url)
    assert "ix_decisions_newest" in difference


async def test_aud_o09_eight_processes_start_at_once_on_an_empty_database(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with postgres_server.database(EMPTY) as url:
        environ = environment(tmp_path, DATABASE_URL=url)
        migrated = await asyncio.gather(*(run("migrate", environ=environ) for _ in range(8)))
        assert [each.code for each in migrated] == [0] * 8, migrated
        assert await current(url) == head()
        assert await check(url) == []


async def test_nothing_is_wrong_with_a_migrated_database(database_url: str) -> None:
    assert await problems(database_url) == []


async def test_an_empty_database_is_said_to_need_migration(postgres_server: PostgresServer) -> None:
    async with postgres_server.database(EMPTY) as url:
        [said] = await problems(url)
        assert "classifier migrate" in said
        store = PostgresStore(url, hash_key=KEY)
        with pytest.raises(StoreUnavailable, match="classifier migrate"):
            await store.record([decision()])
        await store.aclose()


async def test_a_database_that_does_not_answer_is_one_sentence() -> None:
    [said] = await problems("postgresql://nobody:secret@127.0.0.1:1/none")
    assert said.startswith("The database cannot be reached")
    assert "secret" not in said


async def test_an_address_of_something_else_is_one_sentence() -> None:
    for url in ("mysql://u:secret@host/name", "nonsense"):
        [said] = await problems(url)
        assert "secret" not in said


async def test_a_login_that_may_not_create_roles_is_told_the_sql(postgres_server: PostgresServer) -> None:
    async with postgres_server.database(EMPTY) as url:
        await postgres_server.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
        try:
            plain = (
                sa.make_url(url).set(username="plain", password="plain").render_as_string(hide_password=False)
            )
            with pytest.raises(
                ConfigurationError, match=r"CREATE ROLE classifier_writer NOLOGIN;.*GRANT .* TO plain"
            ):
                await upgrade(plain)
            [cannot, empty] = await problems(plain)
            assert "cannot act as classifier_owner" in cannot
            assert "no audit history yet" in empty
        finally:
            await postgres_server.execute("DROP ROLE plain")


async def test_a_login_with_the_owners_rights_is_a_problem(
    postgres_server: PostgresServer, database_url: str
) -> None:
    await postgres_server.execute("GRANT classifier_owner TO classifier WITH INHERIT TRUE")
    try:
        [said] = await problems(database_url)
        assert "WITH INHERIT FALSE" in said
    finally:
        await postgres_server.execute("GRANT classifier_owner TO classifier WITH INHERIT FALSE")
