"""The shop's orders, and the credits that the desk gives on them."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from typing import ClassVar

from soev.domain import Element, InvalidQueryError

ORDERS = Path(__file__).parent / "orders.json"


class Order(Element):
    """An order. The model can act on it, and cannot cite it."""

    tag: ClassVar[str] = "order"

    number: str
    placed: str
    status: str
    total_cents: int
    items: tuple[str, ...]

    def show(self) -> str:
        """Show the order as a person would read it."""
        return (
            f"Order {self.number} of {self.placed}, {self.status}, {euros(self.total_cents)}: "
            f"{'; '.join(self.items)}"
        )


def euros(cents: int) -> str:
    """Write an amount of cents as euros."""
    return f"{cents // 100}.{cents % 100:02} EUR"


class OrderBook:
    """The orders of the shop, read from a file.

    Args:
        path: A JSON list of orders.
    """

    def __init__(self, path: Path = ORDERS) -> None:
        rows = json.loads(path.read_text("utf-8"))
        made = [Order(id=f"order:{row['number']}", **row) for row in rows]
        self._orders = {order.number: order for order in made}
        self._by_id = {order.id: order for order in made}

    def find(self, number: str) -> Order:
        """Return the order of a number.

        Raises:
            InvalidQueryError: There is none.
        """
        found = self._orders.get(number.strip().upper())
        if found is None:
            raise InvalidQueryError(
                f"There is no order {number!r}. Order numbers look like HO-10418; ask for it."
            )
        return found

    def of_id(self, order_id: str) -> Order:
        """Return the order of an element's id.

        Raises:
            KeyError: There is none.
        """
        return self._by_id[order_id]


class Ledger:
    """The credits that were given, each by a key. A repeat of a key is dropped.

    A process can stop after a credit was given and before that was recorded. Then it is given
    again, under the same key.

    Args:
        path: The file that they are kept in, None for memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._rows = sqlite3.connect(path or ":memory:", check_same_thread=False)
        self._rows.execute(
            "CREATE TABLE IF NOT EXISTS given"
            " (key TEXT PRIMARY KEY, order_number TEXT, cents INTEGER, reason TEXT)"
        )

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def credit(self, key: str, order: Order, cents: int, reason: str) -> None:
        """Give a credit on an order, unless it was given under this key before.

        Raises:
            InvalidQueryError: The credits of the order would pass its total.
        """
        with self._lock, self._rows:
            if self._rows.execute("SELECT 1 FROM given WHERE key = ?", (key,)).fetchone():
                return
            others = self._sum(order.number)
            if others + cents > order.total_cents:
                raise InvalidQueryError(
                    f"A credit of {euros(cents)} is too much: the order cost "
                    f"{euros(order.total_cents)}, and {euros(others)} are credited already."
                )
            row = (key, order.number, cents, reason)
            self._rows.execute("INSERT INTO given VALUES (?, ?, ?, ?)", row)

    def credited(self, number: str) -> int:
        """Return the sum of an order's credits, in cents."""
        with self._lock:
            return self._sum(number)

    def _sum(self, number: str) -> int:
        found: int = self._rows.execute(
            "SELECT COALESCE(SUM(cents), 0) FROM given WHERE order_number = ?", (number,)
        ).fetchone()[0]
        return found
