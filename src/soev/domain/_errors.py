"""Errors that cross a port.

SoevError
├── TransientError              a resource failed for a moment
├── InvalidQueryError           the caller's query is at fault
├── ResourceUnavailableError    the resource is not there
├── StoreError                  a store's answer; none is a TransientError
│   ├── PositionConflictError
│   ├── LeaseHeldError
│   ├── LeaseLostError
│   ├── OutcomeUnknownError
│   ├── StoreUnavailableError
│   ├── StoreRewoundError
│   ├── UnknownThreadError
│   ├── ThreadExistsError
│   └── PositionOutOfRangeError
├── UnencodableError            a value that JSON cannot hold
├── UnknownElementTypeError     a stored element of a class that is not listed
└── RealModelBlockedError       a real model was about to be called in a test
"""

from __future__ import annotations

from soev.domain._lease import Head, Lease


class SoevError(Exception):
    """The root of every error class of this project."""


class _Told(SoevError):
    """An error whose text is the raiser's own, with a sentence of its class as the default."""

    default = ""

    def __str__(self) -> str:
        return " ".join(str(arg) for arg in self.args) or self.default


class TransientError(_Told):
    """A resource failed for a moment: the same attempt may succeed later.

    A step that raises it leaves a transient Failure, and the next resume runs the step again.
    """

    default = "A resource failed for a moment. Try again later."


class InvalidQueryError(_Told):
    """A query is at fault, not the resource. The text is worded for the model that wrote it."""

    default = "The resource refused the query. Ask for something else."


class ResourceUnavailableError(_Told):
    """A resource is not there, and trying again will not bring it."""

    default = "The resource is not available."


class StoreError(SoevError):
    """An answer of a store other than success. No tool may turn one into a result."""


class PositionConflictError(StoreError):
    """Another append came first, so nothing of this one was stored.

    Args:
        thread_id: The thread.
        expected: The position that the append was made for.
        head: The head that the store found instead.
    """

    def __init__(self, thread_id: str, expected: int, head: Head) -> None:
        super().__init__(thread_id, expected, head)
        self.thread_id, self.expected, self.head = thread_id, expected, head

    def __str__(self) -> str:
        return (
            f"Thread {self.thread_id!r} stands at position {self.head.position}, not at "
            f"{self.expected}: another append came first. Read the new events and decide again."
        )


class LeaseHeldError(StoreError):
    """Another owner holds the thread's lease. Nothing ran and nothing was recorded.

    Args:
        thread_id: The thread.
        lease: The lease that is valid now, or None when the store did not say.
    """

    def __init__(self, thread_id: str, lease: Lease | None = None) -> None:
        super().__init__(thread_id, lease)
        self.thread_id, self.lease = thread_id, lease

    def __str__(self) -> str:
        holder = (
            f"{self.lease.owner!r} until {self.lease.expires:%H:%M:%S} UTC"
            if self.lease
            else "another owner"
        )
        return (
            f"Thread {self.thread_id!r} is run by {holder}. "
            "Follow it with `Thread.follow`, or resume it after that."
        )


class LeaseLostError(StoreError):
    """The lease is no longer held: it was taken over, released, or its thread is gone.

    Nothing was stored under it. It is not LeaseHeldError, which refuses a new lease.

    Args:
        lease: The lease that was lost.
    """

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.lease = lease

    def __str__(self) -> str:
        return (
            f"The lease of {self.lease.owner!r} on thread {self.lease.thread_id!r} (epoch "
            f"{self.lease.epoch}) is lost. Resume the thread to take a new one."
        )


class OutcomeUnknownError(StoreError):
    """A write was sent and no answer came: it may be stored, now or in a moment.

    Repeat the identical call, with the same batch id. Reading back proves nothing.

    Args:
        thread_id: The thread.
        operation: The store's method, such as `append`.
        reason: What broke, without any secret.
    """

    def __init__(self, thread_id: str, operation: str, reason: str) -> None:
        super().__init__(thread_id, operation, reason)
        self.thread_id, self.operation, self.reason = thread_id, operation, reason

    def __str__(self) -> str:
        return (
            f"The outcome of `{self.operation}` on thread {self.thread_id!r} is unknown: "
            f"{self.reason}. Repeat the identical call."
        )


class StoreUnavailableError(StoreError):
    """The store could not be reached, or could not write. Certainly nothing was stored.

    Args:
        operation: The store's method, such as `append`.
        reason: What broke, without any secret.
    """

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(operation, reason)
        self.operation, self.reason = operation, reason

    def __str__(self) -> str:
        return (
            f"The store cannot `{self.operation}` now: {self.reason}. Nothing was stored. "
            "Try again when the store is back."
        )


class StoreRewoundError(StoreError):
    """A thread's head is lower than it was: the store lost events, as after a restored backup.

    Args:
        thread_id: The thread.
        seen: The highest position that was seen.
        found: The position that the store has now.
    """

    def __init__(self, thread_id: str, seen: int, found: int) -> None:
        super().__init__(thread_id, seen, found)
        self.thread_id, self.seen, self.found = thread_id, seen, found

    def __str__(self) -> str:
        return (
            f"Thread {self.thread_id!r} ends at position {self.found}, but position {self.seen} "
            "was read before: the store lost events. Compare it with your backup before you go on."
        )


class UnknownThreadError(StoreError):
    """No events are under this id.

    Args:
        thread_id: The id that was asked for.
    """

    def __init__(self, thread_id: str) -> None:
        super().__init__(thread_id)
        self.thread_id = thread_id

    def __str__(self) -> str:
        return (
            f"The store has no thread {self.thread_id!r}. Open it first, or check whether it was "
            "deleted."
        )


class ThreadExistsError(StoreError):
    """The id has events already, so nothing was stored under it.

    Args:
        thread_id: The id that is taken.
    """

    def __init__(self, thread_id: str) -> None:
        super().__init__(thread_id)
        self.thread_id = thread_id

    def __str__(self) -> str:
        return f"Thread {self.thread_id!r} exists already. Submit to it, or open another id."


class PositionOutOfRangeError(StoreError):
    """A position is not in the log, or lies inside an append where no log may be cut.

    Args:
        thread_id: The thread.
        position: The position that was asked for.
        last: The last position of the log.
        nearest: The ends of appends around the position, when it lies inside one.
    """

    def __init__(
        self, thread_id: str, position: int, last: int, nearest: tuple[int, ...] = ()
    ) -> None:
        super().__init__(thread_id, position, last, nearest)
        self.thread_id, self.position, self.last = thread_id, position, last
        self.nearest = nearest

    def __str__(self) -> str:
        if self.nearest:
            ends = " or ".join(str(end) for end in self.nearest)
            return (
                f"Thread {self.thread_id!r} cannot be cut at position {self.position}, inside an "
                f"append. Cut it at {ends}."
            )
        return (
            f"Thread {self.thread_id!r} has no position {self.position}. "
            f"Use one from 1 to {self.last}."
        )


class UnencodableError(SoevError):
    """A value cannot be written as JSON that reads back. Nothing was sent.

    Args:
        holder: What holds the value, such as an event's type.
        path: The JSON path of the value, `$` for the whole.
        problem: What is wrong with it.
    """

    def __init__(self, holder: str, path: str, problem: str) -> None:
        super().__init__(holder, path, problem)
        self.holder, self.path, self.problem = holder, path, problem

    def __str__(self) -> str:
        return f"`{self.holder}` cannot be recorded: at {self.path}, {self.problem}."


class UnknownElementTypeError(SoevError):
    """A stored element's tag is not among the classes that elements are read back into.

    Args:
        tag: The tag that was found.
        known: The tags that are listed.
    """

    def __init__(self, tag: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(tag, known)
        self.tag, self.known = tag, known

    def __str__(self) -> str:
        listed = ", ".join(repr(tag) for tag in self.known) or "none"
        return (
            f"No listed element class has the tag {self.tag!r} (listed: {listed}). "
            "Add the class to the agent's `element_types`."
        )


class RealModelBlockedError(SoevError):
    """A real model was about to be called while a test runs. Nothing was sent.

    Args:
        model: The name of the model.
        caller: Who called it, such as the name of a test.
    """

    def __init__(self, model: str, caller: str) -> None:
        super().__init__(model, caller)
        self.model, self.caller = model, caller

    def __str__(self) -> str:
        return (
            f"model {self.model!r} was called by {self.caller}. Use a `ScriptedChatModel`, or mark "
            'the test with `@pytest.mark.soev_live("why")`.'
        )
