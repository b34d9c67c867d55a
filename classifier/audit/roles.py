"""The group roles that everything acts as, and what is wrong with a database before it is used."""

from __future__ import annotations

import asyncio
from typing import cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from classifier.audit.engine import ROLES, Role, create_engine, sqlalchemy_url, sqlstate
from classifier.audit.tables import SCHEMA
from classifier.errors import ConfigurationError

INSUFFICIENT_PRIVILEGE = "42501"
_INHERIT_PER_GRANT = 160000
_TIMEOUT = 5.0

_WHO = sa.text(
    "SELECT session_user AS name, rolsuper, rolbypassrls, "
    "quote_ident(session_user) AS quoted, quote_ident(current_database()) AS database, "
    "current_setting('server_version_num')::int AS version FROM pg_roles WHERE rolname = session_user"
)
_ROLES = sa.text("SELECT rolname FROM pg_roles WHERE rolname = ANY(:names)")
_HAS_ROLE = sa.text("SELECT pg_has_role(session_user, CAST(:role AS name), :right)")
_HAS_SCHEMA = sa.text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
_VERSION = sa.text("SELECT version_num FROM classifier.alembic_version")
_HAS_TABLE = sa.text(
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = :schema AND c.relname = :name"
)
_CREATE_ROLE = """DO $$ BEGIN CREATE ROLE {role} NOLOGIN NOSUPERUSER NOBYPASSRLS;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"""


async def ensure_roles_and_schema(connection: AsyncConnection) -> None:
    """Makes what is missing of the group roles, this login's membership in them, and the schema.

    Raises:
        ConfigurationError: This login may not; the message holds the SQL for somebody who may.
    """
    who = (await connection.execute(_WHO)).one()
    try:
        for statement in await _missing(connection, who):
            await connection.execute(sa.text(statement))
    except DBAPIError as error:
        if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
            raise
        raise ConfigurationError(_help(who)) from None


async def _missing(connection: AsyncConnection, who: sa.Row[tuple[object, ...]]) -> list[str]:
    present = set((await connection.execute(_ROLES, {"names": list(ROLES)})).scalars())
    right = _right_to_set(who.version)
    statements: list[str] = []
    for role in ROLES:
        if role not in present:
            statements.append(_CREATE_ROLE.format(role=role))
        elif (await connection.execute(_HAS_ROLE, {"role": role, "right": right})).scalar_one():
            continue
        statements.append(_grant(role, who))
    if (await connection.execute(_HAS_SCHEMA, {"name": SCHEMA})).first() is None:
        statements.append(f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {ROLES[0]}")
    return statements


def _right_to_set(version: int) -> str:
    return "SET" if version >= _INHERIT_PER_GRANT else "MEMBER"


def _grant(role: str, who: sa.Row[tuple[object, ...]]) -> str:
    options = " WITH INHERIT FALSE, SET TRUE" if who.version >= _INHERIT_PER_GRANT else ""
    return f"GRANT {role} TO {who.quoted}{options}"


def _help(who: sa.Row[tuple[object, ...]]) -> str:
    roles = " ".join(f"CREATE ROLE {role} NOLOGIN;" for role in ROLES)
    grants = _grant(", ".join(ROLES), who)
    schema = f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {ROLES[0]};"
    return (
        f"the database login {who.name!r} may not create the roles of the audit history; "
        f"an administrator has to run, in the database {who.database}: {roles} {grants}; {schema}"
    )


async def has_table(connection: AsyncConnection, name: str) -> bool:
    """Whether our schema has this table, asked of the catalogue, which needs no right on the schema."""
    return (await connection.execute(_HAS_TABLE, {"schema": SCHEMA, "name": name})).first() is not None


async def problems(database_url: str) -> list[str]:
    """What keeps this database from being used safely, one sentence each; empty when all is well.

    Finds: not reachable, schema missing or behind, login above row-level security (superuser, BYPASSRLS,
    owner of the tables), roles that are missing or may not be used.

    Waits a few seconds for an answer.
    """
    try:
        sqlalchemy_url(database_url)
    except ConfigurationError as error:
        return [f"DATABASE_URL: {error}."]
    engine = create_engine(database_url, role=None, timeout=_TIMEOUT, name="classifier check")
    try:
        async with asyncio.timeout(2 * _TIMEOUT), engine.connect() as connection:
            return await _found(connection)
    except (OSError, DBAPIError) as error:
        return [
            f"The database cannot be reached ({sqlstate(error) or type(error).__name__}): see DATABASE_URL."
        ]
    except Exception as error:  # the driver raises its own errors while it connects
        if sqlstate(error) is None:
            raise
        return [f"The database does not let us in ({sqlstate(error)}): see DATABASE_URL."]
    finally:
        await engine.dispose()


async def _found(connection: AsyncConnection) -> list[str]:
    who = (await connection.execute(_WHO)).one()
    found: list[str] = []
    if who.rolsuper:
        found.append(
            f"The login {who.name!r} is a superuser, whom row-level security does not bind: use another."
        )
    elif who.rolbypassrls:
        found.append(f"The login {who.name!r} has BYPASSRLS, so tenants are not kept apart: take it away.")
    else:
        found.extend(await _owned(connection, who.name))
    unusable = await _unusable_roles(connection, who.version)
    if unusable:
        found.append(f"The login {who.name!r} cannot act as {', '.join(unusable)}: run `classifier migrate`.")
    found.extend(await _schema_state(connection, unusable))
    return found


async def _owned(connection: AsyncConnection, name: str) -> list[str]:
    owns = await connection.execute(
        sa.text(
            "SELECT DISTINCT pg_get_userbyid(c.relowner) FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema "
            "AND pg_has_role(session_user, c.relowner, 'USAGE')"
        ),
        {"schema": SCHEMA},
    )
    return [
        f"The login {name!r} has the rights of {owner!r}, the owner of the tables: "
        "grant it WITH INHERIT FALSE."
        for owner in owns.scalars()
    ]


async def _unusable_roles(connection: AsyncConnection, version: int) -> list[Role]:
    present = set((await connection.execute(_ROLES, {"names": list(ROLES)})).scalars())
    right = _right_to_set(version)
    return [
        role
        for role in ROLES
        if role not in present
        or not (await connection.execute(_HAS_ROLE, {"role": role, "right": right})).scalar_one()
    ]


async def _schema_state(connection: AsyncConnection, unusable: list[Role]) -> list[str]:
    from classifier.audit.schema import head  # noqa: PLC0415 - it imports this module

    if not await has_table(connection, "alembic_version"):
        return ["The database has no audit history yet: run `classifier migrate`."]
    if unusable:
        return []
    await connection.execute(sa.text("SET LOCAL ROLE classifier_reader"))
    version = await connection.execute(_VERSION)
    found = cast("str | None", version.scalar())
    if found == head():
        return []
    return [f"The audit history is at version {found}, not at {head()}: run `classifier migrate`."]
