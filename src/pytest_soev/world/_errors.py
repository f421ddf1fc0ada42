"""What the deterministic world raises.

SoevError
└── WorldError
    ├── OutsideError          code under test left the deterministic world
    ├── DeadlockError         nothing is ready, no timer is set, and the scenario waits
    ├── EndlessError          a limit of steps or of virtual time was passed
    ├── ProcessDiedError      the process that was waited for was killed
    ├── BrokenRuleError       the store or the runtime broke a rule that holds at every moment
    └── UndurableActError     an effector acted on an intent that the store does not hold
"""

from __future__ import annotations

from soev.domain import SoevError


class WorldError(SoevError):
    """The root of what the deterministic world raises."""


class OutsideError(WorldError):
    """Code under test reached for something that no schedule can decide: a socket, a signal.

    Args:
        what: What it reached for.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return (
            f"The deterministic world has no {self.what}. Put a fake of the port in its place, "
            "or run this code on a real event loop."
        )


class DeadlockError(WorldError):
    """Nothing is ready, no timer is set, and the scenario still waits.

    Args:
        tasks: For each task that waits: its name and where it waits, the innermost place last.
        frozen: The processes that are frozen and have no time to thaw at.
    """

    def __init__(self, tasks: tuple[str, ...], frozen: tuple[str, ...]) -> None:
        super().__init__(tasks, frozen)
        self.tasks, self.frozen = tasks, frozen

    def __str__(self) -> str:
        lines = ["Nothing is left that could happen, and the scenario has not ended. Who waits:"]
        lines += [f"  {task}" for task in self.tasks]
        if self.frozen:
            lines.append(f"Frozen until somebody thaws them: {', '.join(self.frozen)}.")
        return "\n".join(lines)


class EndlessError(WorldError):
    """A schedule passed a limit, so the scenario does not come to an end.

    Args:
        what: What is limited.
        limit: The most of it.
        tasks: Where each task waits.
    """

    def __init__(self, what: str, limit: float, tasks: tuple[str, ...]) -> None:
        super().__init__(what, limit, tasks)
        self.what, self.limit, self.tasks = what, limit, tasks

    def __str__(self) -> str:
        lines = [f"The scenario did not end within {self.limit:g} {self.what}. Its tasks:"]
        return "\n".join([*lines, *(f"  {task}" for task in self.tasks)])


class ProcessDiedError(WorldError):
    """A process was killed while somebody outside waited for its work.

    Args:
        name: The process.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"Process {self.name!r} was killed. Start its work again after `restart()`."


class BrokenRuleError(WorldError):
    """The log or the leases broke a rule that holds at every moment.

    Args:
        rule: The rule's number, such as `I3`.
        problem: What happened.
    """

    def __init__(self, rule: str, problem: str) -> None:
        super().__init__(rule, problem)
        self.rule, self.problem = rule, problem

    def __str__(self) -> str:
        return f"{self.rule} does not hold: {self.problem}."


class UndurableActError(WorldError):
    """An effector was asked to act on an intent that no store holds.

    Args:
        intent_id: The intent's id, or None where it has none.
    """

    def __init__(self, intent_id: str | None) -> None:
        super().__init__(intent_id)
        self.intent_id = intent_id

    def __str__(self) -> str:
        return (
            f"The act of intent {self.intent_id!r} began before the intent was recorded. Perform "
            "an effect only after the append of its intent was answered."
        )
