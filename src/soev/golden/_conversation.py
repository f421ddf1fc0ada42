"""Messages as lines of text, in sequences that share their beginnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal, overload

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ShownMessage:
    """A message as lines of text. Two messages with the same lines are the same message.

    Args:
        role: Who speaks.
        lines: Everything that the model sees of it, escaped, one item a line.
        call: The handle of the call, for the role `tool`.
    """

    role: Role
    lines: tuple[str, ...]
    call: str | None = None

    @cached_property
    def digest(self) -> bytes:
        """A digest of everything in it."""
        return sha256(repr((self.role, self.call, self.lines)).encode()).digest()

    @cached_property
    def size(self) -> int:
        """How many characters its lines have."""
        return sum(map(len, self.lines)) + len(self.lines)


class ShownMessages(Sequence[ShownMessage]):
    """An immutable sequence of messages that shares its beginning with those it came from.

    It knows its last message and what precedes it, so a longer conversation costs its new
    messages alone: to make, to compare and to hash.
    """

    __slots__ = ("_after", "_length", "before", "digest", "last", "size")

    def __init__(self) -> None:
        self.before: ShownMessages | None = None
        self.last: ShownMessage | None = None
        self.digest = b""
        self.size = 0
        self._length = 0
        self._after: dict[bytes, ShownMessages] = {}

    @classmethod
    def of(cls, messages: Iterable[ShownMessage]) -> ShownMessages:
        """Return a sequence of these messages."""
        return messages if isinstance(messages, ShownMessages) else cls().adding(messages)

    def adding(self, messages: Iterable[ShownMessage]) -> ShownMessages:
        """Return the sequence with more messages at its end, the same object for the same ones."""
        longer = self
        for message in messages:
            known = longer._after.get(message.digest)
            longer = longer._with(message) if known is None else known
        return longer

    def _with(self, message: ShownMessage) -> ShownMessages:
        longer = ShownMessages()
        longer.before, longer.last = self, message
        longer.digest = sha256(self.digest + message.digest).digest()
        longer.size, longer._length = self.size + message.size, self._length + 1
        self._after[message.digest] = longer
        return longer

    def first(self, count: int) -> ShownMessages:
        """Return the sequence of the first messages."""
        shorter = self
        while shorter._length > count and shorter.before is not None:
            shorter = shorter.before
        return shorter

    def shared(self, other: ShownMessages) -> int:
        """Count the messages that both begin with."""
        most = min(len(self), len(other))
        one, two = self.first(most), other.first(most)
        while one.digest != two.digest:
            assert one.before is not None
            assert two.before is not None
            one, two = one.before, two.before
        return len(one)

    @overload
    def __getitem__(self, index: int) -> ShownMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ShownMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> ShownMessage | tuple[ShownMessage, ...]:
        """Return one message, or a tuple of them."""
        return tuple(self)[index]

    def __iter__(self) -> Iterator[ShownMessage]:
        """Yield the messages from the first on."""
        yield from reversed(list(self._backwards()))

    def _backwards(self) -> Iterator[ShownMessage]:
        shorter: ShownMessages | None = self
        while shorter is not None and shorter.last is not None:
            yield shorter.last
            shorter = shorter.before

    def __len__(self) -> int:
        """Count the messages."""
        return self._length

    def __eq__(self, other: object) -> bool:
        """Compare by what the messages say."""
        return isinstance(other, ShownMessages) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash by what the messages say."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Show the messages as a list."""
        return f"ShownMessages.of({list(self)!r})"

    def __reduce__(self) -> tuple[object, tuple[tuple[ShownMessage, ...]]]:
        """Pickle the messages alone."""
        return ShownMessages.of, (tuple(self),)
