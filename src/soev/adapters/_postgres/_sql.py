"""The text of each statement of a PostgreSQL trace store; `$.` stands for its schema."""

from __future__ import annotations

from soev.adapters._postgres._session import SETTLED

HEAD = (
    "t.key, t.created, t.last_type, t.id, t.incarnation, t.agent, t.position, t.updated, t.epoch, "
    "t.owner, t.request, t.expires, t.ttl"
)
EVENT = "e.position, e.type, e.data, e.stream, e.origin, e.version, e.seq, e.ts, e.rest"

FIND = f"SELECT c.now, {HEAD} FROM $.clock() AS c(now) LEFT JOIN $.threads AS t ON t.id = %s"
LOCK = "SELECT 1 FROM $.threads WHERE id = %s FOR UPDATE"
SHARE = "SELECT 1 FROM $.threads WHERE id = %s FOR SHARE"

THREADS = f"SELECT (SELECT $.clock()), {HEAD} FROM $.threads AS t WHERE true"
OF_AGENT = " AND t.agent = %s"
BEFORE = " AND (t.updated, t.id) < (%s, %s)"
NEWEST = " ORDER BY t.updated DESC, t.id DESC LIMIT %s"

APPEND = f"SELECT * FROM $.append({', '.join(['%s'] * 15)})"
BATCH = f"""
    SELECT {EVENT} FROM $.events AS e
    WHERE e.thread = %s AND e.position >= %s
        AND e.position < coalesce((
            SELECT min(n.position) FROM $.events AS n
            WHERE n.thread = %s AND n.position > %s AND n.batch IS NOT NULL
        ), %s)
        AND %s = (SELECT f.batch FROM $.events AS f WHERE f.thread = %s AND f.position = %s)
    ORDER BY e.position
"""

# One statement sees one moment, so the head and the entries of a page agree.
PAGE = f"""
    SELECT c.now, {HEAD}, {EVENT}
    FROM $.clock() AS c(now)
    LEFT JOIN $.threads AS t ON t.id = %s
    LEFT JOIN LATERAL (
        SELECT * FROM $.events AS n
        WHERE n.thread = t.key AND n.position > %s ORDER BY n.position LIMIT %s
    ) AS e ON true
    ORDER BY e.position
"""
PAGE_BACK = f"""
    SELECT {EVENT} FROM $.threads AS t
    LEFT JOIN $.events AS e ON e.thread = t.key AND e.position BETWEEN %s AND %s
    WHERE t.id = %s AND t.incarnation = %s ORDER BY e.position DESC
"""

# The row is judged again once it is locked; a time read before that lets nobody steal too early.
ACQUIRE = f"""
    UPDATE $.threads AS t SET
        epoch = t.epoch + CASE WHEN t.owner = c.owner AND t.request = c.request THEN 0 ELSE 1 END,
        owner = c.owner, request = c.request, expires = c.now + c.ttl, ttl = c.ttl
    FROM (
        SELECT %s AS id, %s AS owner, %s AS request, %s::bigint AS ttl, $.clock() AS now,
            {SETTLED}, set_config('lock_timeout', %s, true)
        OFFSET 0
    ) AS c
    WHERE t.id = c.id
        AND (t.owner IS NULL OR t.expires <= c.now OR (t.owner, t.request) = (c.owner, c.request))
    RETURNING t.incarnation, t.epoch, t.expires
"""
SAVE_LEASE = """
    UPDATE $.threads SET epoch = %s, owner = %s, request = %s, expires = %s, ttl = %s
    WHERE id = %s
"""
SETTLE = """
    UPDATE $.threads SET expires = c.now + ttl FROM $.clock() AS c(now)
    WHERE owner IS NOT NULL AND expires > c.now + ttl
"""

CUT = """
    SELECT e.ts, e.type, e.rest,
        (SELECT max(b.position) FROM $.events AS b
            WHERE b.thread = e.thread AND b.position < e.position AND b.rest = 0),
        (SELECT min(a.position) FROM $.events AS a
            WHERE a.thread = e.thread AND a.position > e.position AND a.rest = 0)
    FROM $.events AS e WHERE e.thread = %s AND e.position = %s
"""
CREATE = """
    INSERT INTO $.threads(
        created, updated, epoch, expires, ttl, position, main, id, incarnation, agent, last_type
    )
    SELECT %s, %s, 0, 0, 0, %s, coalesce(max(e.seq), 0), %s, %s, %s, %s
    FROM $.events AS e WHERE e.thread = %s AND e.position <= %s AND e.stream = 'main'
    ON CONFLICT (id) DO NOTHING RETURNING key
"""
COPY = (
    """
    INSERT INTO $.streams(thread, seq, name)
    SELECT %s, max(seq), stream FROM $.events
    WHERE thread = %s AND position <= %s AND stream <> 'main' GROUP BY stream
    """,
    """
    INSERT INTO $.events(thread, ts, position, seq, rest, type, stream, origin, version, data)
    SELECT %s, ts, position, seq, rest, type, stream, origin, version, data FROM $.events
    WHERE thread = %s AND position <= %s
    """,
)
DELETE = (
    "DELETE FROM $.events WHERE thread = %s",
    "DELETE FROM $.streams WHERE thread = %s",
    "DELETE FROM $.threads WHERE id = %s",
)

ALL = (
    *(FIND, LOCK, SHARE, THREADS, APPEND, BATCH, PAGE, PAGE_BACK),
    *(ACQUIRE, SAVE_LEASE, SETTLE, CUT, CREATE),
    *COPY,
    *DELETE,
)
