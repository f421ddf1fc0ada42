"""A read-only mapping that grows without being copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Growing(Mapping[K, V]):
    """A mapping that shares its entries with the longer ones that came from it.

    It is bounded by its own count, so later entries do not show. Adding to the newest one costs
    the entry alone; adding to an older one starts a mapping that points back at it.

    Args:
        base: The mapping to go on from.
    """

    __slots__ = ("_base", "_count", "_items", "_offset")

    def __init__(self, base: Growing[K, V] | None = None) -> None:
        self._base = base
        self._offset = 0 if base is None else len(base)
        self._items: dict[K, tuple[int, V]] = {}
        self._count = 0

    def add(self, key: K, value: V) -> Growing[K, V]:
        """Return the mapping with one more entry, or this one when it has the key already."""
        if key in self:
            return self
        newest = self if self._count == len(self._items) else Growing(self)
        newest._items[key] = (newest._count, value)
        grown: Growing[K, V] = Growing.__new__(Growing)
        grown._base, grown._offset = newest._base, newest._offset
        grown._items, grown._count = newest._items, newest._count + 1
        return grown

    def _entry(self, key: object) -> tuple[int, V] | None:
        window: Growing[K, V] | None = self
        while window is not None:
            entry = window._items.get(key)  # type: ignore[arg-type]  # any key may be asked for
            if entry is not None and entry[0] < window._count:
                return entry
            window = window._base
        return None

    def __getitem__(self, key: K) -> V:
        entry = self._entry(key)
        if entry is None:
            raise KeyError(key)
        return entry[1]

    def get(self, key: object, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        entry = self._entry(key)
        return default if entry is None else entry[1]

    def __contains__(self, key: object) -> bool:
        return self._entry(key) is not None

    def __iter__(self) -> Iterator[K]:
        if self._base is not None:
            yield from self._base
        yield from islice(self._items, self._count)

    def __len__(self) -> int:
        return self._offset + self._count

    def __repr__(self) -> str:
        return repr(dict(self))
