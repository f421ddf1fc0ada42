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


class Ledger:
    """The credits that were given. The same credit twice is one credit.

    A process can stop after a credit was given and before that was recorded. Then the tool runs
    again, so what it does must be safe to repeat.

    Args:
        path: The file that they are kept in, None for memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._rows = sqlite3.connect(path or ":memory:", check_same_thread=False)
        self._rows.execute(
            "CREATE TABLE IF NOT EXISTS credits (order_number TEXT, cents INTEGER, reason TEXT,"
            " PRIMARY KEY (order_number, cents))"
        )

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def credit(self, order: Order, cents: int, reason: str) -> None:
        """Give a credit on an order.

        Raises:
            InvalidQueryError: The credits of the order would pass its total.
        """
        with self._lock, self._rows:
            others = self._rows.execute(
                "SELECT COALESCE(SUM(cents), 0) FROM credits WHERE order_number = ? AND cents <> ?",
                (order.number, cents),
            ).fetchone()[0]
            if others + cents > order.total_cents:
                raise InvalidQueryError(
                    f"A credit of {euros(cents)} is too much: the order cost "
                    f"{euros(order.total_cents)}, and {euros(others)} are credited already."
                )
            self._rows.execute(
                "INSERT OR IGNORE INTO credits VALUES (?, ?, ?)", (order.number, cents, reason)
            )

    def credited(self, number: str) -> int:
        """Return the sum of an order's credits, in cents."""
        with self._lock:
            found: int = self._rows.execute(
                "SELECT COALESCE(SUM(cents), 0) FROM credits WHERE order_number = ?", (number,)
            ).fetchone()[0]
        return found
