"""What the harness raises.

SoevError
└── HarnessError
    ├── ChangedEventError     a step changed an event that it was shown
    ├── ImpureError           a router, or an effect's `intend`, answered one view in two ways
    ├── ActOutsideEffectError something else than an effect acted on the world
    ├── NotReachedError       the point at which a crash was to happen was not reached
    ├── DeadProcessError      the process crashed and was not started again
    ├── LeftTasksError        asyncio tasks were left when the test ended
    ├── NotSettledError       the turn waits for an answer that was not given
    └── NoThreadError         no thread was opened yet
BaseException
└── ProcessCrash              a simulated death of the process, which `except Exception` lets pass
"""

from __future__ import annotations

from soev.domain import SoevError


class HarnessError(SoevError):
    """The root of what the harness finds wrong."""


class ChangedEventError(HarnessError):
    """A step changed an event that it was shown. The log has the old text, the process the new.

    Args:
        node: The node whose step it is.
        event: The class of the event.
        before: The event's stored text.
        after: What it is now.
    """

    def __init__(self, node: str, event: str, before: str, after: str) -> None:
        super().__init__(node, event, before, after)
        self.node, self.event, self.before, self.after = node, event, before, after

    def __str__(self) -> str:
        return (
            f"The step of node {self.node!r} changed {self.event} that it was shown. Let it "
            f"copy what it changes.\n  - {self.before}\n  + {self.after}"
        )


class ImpureError(HarnessError):
    """A function of the view alone gave two answers to one view.

    Args:
        what: The function, such as `the router after 'model'`.
        first: Its first answer.
        second: Its second answer.
    """

    def __init__(self, what: str, first: str, second: str) -> None:
        super().__init__(what, first, second)
        self.what, self.first, self.second = what, first, second

    def __str__(self) -> str:
        return (
            f"Asked twice about one view, {self.what} answered {self.first} and then "
            f"{self.second}. Let it depend on the view alone."
        )


class ActOutsideEffectError(HarnessError):
    """The world was acted on outside of an effect, so a crash would repeat the act.

    Args:
        node: The node whose step did it, or None outside of any step.
        kind: The kind of the act.
    """

    def __init__(self, node: str | None, kind: str) -> None:
        super().__init__(node, kind)
        self.node, self.kind = node, kind

    def __str__(self) -> str:
        who = "Code outside of any step" if self.node is None else f"The step of {self.node!r}"
        return (
            f"{who} performed {self.kind!r} itself. Make it an `EffectTool` or an `EffectStep`, "
            "whose intent is recorded first."
        )


class NotReachedError(HarnessError):
    """The process did not crash, since no code reached the point.

    Args:
        point: The point.
        time: Which time it was to be reached.
        passed: The points that were passed.
    """

    def __init__(self, point: str, time: int, passed: tuple[str, ...]) -> None:
        super().__init__(point, time, passed)
        self.point, self.time, self.passed = point, time, passed

    def __str__(self) -> str:
        seen = ", ".join(dict.fromkeys(self.passed)) or "none"
        return (
            f"Nothing crashed: the point {self.point!r} was reached {self.passed.count(self.point)}"
            f" times, and the crash waits for time {self.time}. Points that were passed: {seen}."
        )


class DeadProcessError(HarnessError):
    """The process crashed, so it does nothing any more."""

    def __str__(self) -> str:
        return "The process crashed. Start it again with `await soev.restart()`."


class LeftTasksError(HarnessError):
    """Asyncio tasks that began in the harness were left when the test ended.

    Args:
        names: The tasks.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names

    def __str__(self) -> str:
        tasks = "\n".join(f"  {name}" for name in self.names)
        return (
            f"{len(self.names)} asyncio tasks were left when the test ended. Await them in the "
            f"step that made them, or end the run with `soev.cancel()`.\n{tasks}"
        )


class NotSettledError(HarnessError):
    """The turn did not end, since it waits or goes on failing.

    Args:
        state: The state of the thread.
        requests: What it waits for.
    """

    def __init__(self, state: str, requests: tuple[str, ...]) -> None:
        super().__init__(state, requests)
        self.state, self.requests = state, requests

    def __str__(self) -> str:
        waits = "".join(f"\n  {each}" for each in self.requests)
        return (
            f"The turn is {self.state!r} and does not settle. Answer what it waits for with "
            f"`settled(soev, answer=...)` or `soev.answer(request, ...)`.{waits}"
        )


class NoThreadError(HarnessError):
    """A step of the harness needs a thread, and none was opened."""

    def __str__(self) -> str:
        return "No thread is open. Begin with `await soev.run(agent, payload)` or `soev.open`."


class ProcessCrash(BaseException):  # no error of the code under test: the process dies
    """A simulated death of the process.

    Args:
        point: The named point at which it died.
    """

    def __init__(self, point: str) -> None:
        super().__init__(point)
        self.point = point

    def __str__(self) -> str:
        return f"the process crashed at {self.point!r}; expect it with `soev.crash.expected()`"
