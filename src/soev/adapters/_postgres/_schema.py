"""The tables of a PostgreSQL trace store, and how a database is brought to them."""

from __future__ import annotations

import re
from hashlib import blake2b

from soev.adapters._postgres._session import SETTLED, Session

# Times are microseconds since 1970 and batch ids digests of 16 bytes. Bodies are `text`, which
# keeps every character; ids compare by bytes. `batch` stands in the first row of an append only.
# The last seq of the stream `main` stands in the head row, so that most appends touch two rows.
#
# `append` is the one write that every step makes, so it is one round trip: it changes the head row
# only where life, position and lease are the caller's, and the lock of that row is the order of the
# thread. It answers no row where it changed nothing, and the caller then asks why, under the lock.
MIGRATIONS = (
    f"""
    CREATE TABLE $.threads(
        key bigint GENERATED ALWAYS AS IDENTITY,
        created bigint NOT NULL,
        updated bigint NOT NULL,
        epoch bigint NOT NULL,
        expires bigint NOT NULL,
        ttl bigint NOT NULL,
        position integer NOT NULL,
        main integer NOT NULL,
        id text COLLATE "C" PRIMARY KEY,
        incarnation text COLLATE "C" NOT NULL,
        agent text COLLATE "C",
        last_type text NOT NULL,
        owner text COLLATE "C",
        request text COLLATE "C"
    ) WITH (fillfactor = 70);
    CREATE INDEX threads_by_activity ON $.threads(updated, id);
    CREATE TABLE $.streams(
        thread bigint NOT NULL,
        seq integer NOT NULL,
        name text COLLATE "C" NOT NULL,
        PRIMARY KEY (thread, name)
    ) WITH (fillfactor = 70);
    CREATE TABLE $.events(
        thread bigint NOT NULL,
        ts bigint NOT NULL,
        position integer NOT NULL,
        seq integer NOT NULL,
        rest integer NOT NULL,
        batch uuid,
        type text NOT NULL,
        stream text COLLATE "C" NOT NULL,
        origin text,
        version text,
        data text NOT NULL,
        PRIMARY KEY (thread, position)
    );
    CREATE FUNCTION $.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
        'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
    CREATE FUNCTION $.append(
        in_thread text, in_life text, in_after bigint, in_owner text, in_epoch bigint,
        in_release boolean, in_batch uuid, in_patience text, in_new_life text, in_agent text,
        in_count integer, in_main integer, in_events json, in_names text[], in_counts integer[],
        OUT at bigint, OUT seq integer, OUT seqs integer[]
    ) RETURNS SETOF record LANGUAGE plpgsql VOLATILE AS $body$
    DECLARE
        thread_key bigint;
        final text := in_events -> (in_count - 1) ->> 'type';
    BEGIN
        PERFORM {SETTLED}, set_config('lock_timeout', in_patience, true);
        IF in_life IS NULL THEN
            INSERT INTO $.threads AS t(
                created, updated, epoch, expires, ttl, position, main, id, incarnation, agent,
                last_type
            )
            SELECT c.now, c.now, 0, 0, 0, in_count, in_main, in_thread, in_new_life, in_agent, final
            FROM $.clock() AS c(now)
            ON CONFLICT (id) DO NOTHING RETURNING t.key, t.updated, 0 INTO thread_key, at, seq;
        ELSE
            UPDATE $.threads AS t SET
                position = t.position + in_count,
                main = t.main + in_main,
                updated = greatest($.clock(), t.updated),
                last_type = final,
                owner = CASE WHEN in_release THEN NULL ELSE t.owner END,
                request = CASE WHEN in_release THEN NULL ELSE t.request END
            WHERE t.id = in_thread AND t.incarnation = in_life AND t.position = in_after
                AND (in_owner IS NULL OR (t.owner = in_owner AND t.epoch = in_epoch))
            RETURNING t.key, t.updated, t.main - in_main INTO thread_key, at, seq;
        END IF;
        IF thread_key IS NULL THEN
            RETURN;
        END IF;
        IF cardinality(in_names) > 0 THEN
            WITH counted AS (
                INSERT INTO $.streams AS s(thread, seq, name)
                SELECT thread_key, n.count, n.name
                FROM unnest(in_names, in_counts) AS n(name, count)
                ON CONFLICT (thread, name) DO UPDATE SET seq = s.seq + excluded.seq
                RETURNING s.name, s.seq
            )
            SELECT array_agg(c.seq - n.count ORDER BY n.place) INTO seqs
            FROM unnest(in_names, in_counts) WITH ORDINALITY AS n(name, count, place)
            JOIN counted AS c ON c.name = n.name;
        END IF;
        INSERT INTO $.events(
            thread, ts, position, seq, rest, batch, type, stream, origin, version, data
        )
        SELECT
            thread_key, at, in_after + e.nth, coalesce(seqs[e.place], append.seq) + e.seq, e.rest,
            CASE e.nth WHEN 1 THEN in_batch END, e.type, e.stream, e.origin, e.version, e.data
        FROM json_to_recordset(in_events) AS e(
            nth integer, place integer, seq integer, rest integer,
            type text, stream text, origin text, version text, data text
        );
        RETURN NEXT;
    END
    $body$
    """,
)
NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")


class SchemaError(Exception):
    """The database is not one that this version of soev can use. It never leaves the adapter."""


def check_name(schema: str) -> str:
    """Return the name of a schema that may stand in SQL text.

    Raises:
        ValueError: It is not made of small letters, digits and underscores.
    """
    if not NAME.fullmatch(schema):
        raise ValueError(
            f"`PostgresTraceStore` refuses the schema {schema!r}. Name it with at most 48 small "
            "letters, digits and underscores."
        )
    return schema


async def bring_up(session: Session, schema: str) -> None:
    """Bring a database to today's schema. One process does it, and the others wait.

    Raises:
        SchemaError: The schema is of a later version, or the database is not in UTF-8.
    """
    if await _version(session, schema) == len(MIGRATIONS):
        return
    lock = int.from_bytes(blake2b(f"soev {schema}".encode(), digest_size=8).digest(), signed=True)
    await session.begin(("SELECT pg_advisory_xact_lock(%s)", (lock,)))
    version = await _version(session, schema)
    if version == 0:
        await session.rows(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await session.rows(f"CREATE TABLE {schema}.versions(version integer PRIMARY KEY)")
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        for statement in _statements(script.replace("$.", f"{schema}.")):
            await session.rows(statement)
        await session.rows(f"INSERT INTO {schema}.versions VALUES (%s)", (number,))
    await session.commit()


def _statements(script: str) -> list[str]:
    """Split a script at its semicolons, but not inside the body of a function."""
    plain, *bodies = script.split("$body$")
    statements = [each for each in plain.split(";") if each.strip()]
    if bodies:
        statements[-1] += "".join(f"$body${part}" for part in bodies)
    return statements


async def _version(session: Session, schema: str) -> int:
    """Return how many migrations a database has seen.

    Raises:
        SchemaError: They are more than this version of soev knows, or the encoding is not UTF-8.
    """
    # Unlike `to_regclass`, a query of the catalog's table sees what others have just committed.
    (found,) = await session.rows(
        "SELECT count(*), current_setting('server_encoding') FROM pg_catalog.pg_tables "
        "WHERE schemaname = %s AND tablename = 'versions'",
        (schema,),
    )
    there, encoding = found
    if encoding != "UTF8":
        raise SchemaError(f"its encoding is {encoding}; make a database with the encoding UTF8")
    if not there:
        return 0
    ((version,),) = await session.rows(f"SELECT max(version) FROM {schema}.versions")
    if version > len(MIGRATIONS):
        raise SchemaError(
            f"its schema {schema!r} has version {version}, and this version of soev knows versions "
            f"up to {len(MIGRATIONS)}; install the version of soev that wrote it"
        )
    return int(version)
