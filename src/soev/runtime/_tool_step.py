"""The step that answers the calls of a model's output."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from soev.domain import (
    Event,
    InvalidQueryError,
    ModelOutput,
    ResourceUnavailableError,
    ToolCall,
    ToolOutput,
    ToolOutputBase,
    Trace,
    TransientError,
    elements_in,
    stamped,
    without_secrets,
)
from soev.runtime._arguments import Identity, Reading, misfit, no_object, nothing_named, reading_of
from soev.runtime._calls import CallsOfTurn
from soev.runtime._errors import ToolDefinitionError, ToolResultError, UnrecordedWholeError
from soev.runtime._limits import Limit
from soev.runtime._marks import Filling
from soev.runtime._numbering import numbering
from soev.runtime._tool_checks import check_frozen
from soev.runtime._tools import Tool

_TOLD = (TransientError, InvalidQueryError, ResourceUnavailableError)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool as its step uses it."""

    tool: Tool[Any]
    reading: Reading
    limit: Limit | None
    repeats: bool


@dataclass(frozen=True, slots=True)
class _Due:
    """A call that is to be run."""

    call: ToolCall
    offer: _Offer
    arguments: BaseModel


@dataclass(frozen=True)
class ToolStep:
    """A step that answers the calls of the view's latest model output.

    Args:
        tools: The tools by name.
        repeats: Whether a call that is identical to an earlier one runs again. A tool's own
            `repeats` wins.

    Raises:
        MutableToolError: A tool is no frozen dataclass, or holds a mutable value.
        ToolDefinitionError: A tool has unbound parameters, or its `run` takes more than the
            arguments.
        ValueError: A mark in a tool's arguments stands where no call could be translated.
    """

    tools: Mapping[str, Tool[Any]]
    repeats: bool = False
    _offers: Mapping[str, _Offer] = field(init=False, repr=False, compare=False)
    _identity: CallsOfTurn = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look at each tool once, before anything runs."""
        tools = MappingProxyType(dict(self.tools))
        offers = {name: _offer(tool, repeats=self.repeats) for name, tool in tools.items()}
        readings = tuple((name, each.reading) for name, each in offers.items())
        object.__setattr__(self, "tools", tools)
        object.__setattr__(self, "_offers", offers)
        object.__setattr__(self, "_identity", CallsOfTurn(Identity(readings)))

    async def __call__(self, trace: Trace) -> Sequence[Event]:
        """Return one result for each call without one, in call order.

        Args:
            trace: The stream's view.

        Raises:
            ValueError: The latest model output has no call without a result.
            ToolResultError: A tool returned something else than one ToolOutputBase.
            UnrecordedWholeError: A tool showed a part of what nothing recorded.
        """
        output = trace.latest(ModelOutput)
        answered = trace.results()
        calls = [call for call in output.calls if call not in answered] if output else []
        if output is None or not calls:
            raise ValueError(
                "The latest model output has no call without a result. Route to a `ToolStep` only "
                "after an output with calls."
            )
        work = [self._due(call, output, trace) for call in calls]
        results = await _results(work, trace)
        _check_wholes(calls, results, trace)
        return results

    def _due(self, call: ToolCall, output: ModelOutput, trace: Trace) -> _Due | ToolOutput:
        """Return a call as it is to be run, or the error that answers it."""
        offer = self._offers.get(call.name)
        if offer is None:
            names = ", ".join(f"`{name}`" for name in self._offers)
            has = f"The tools are {names}." if names else "There are no tools."
            return _refusal(call, trace, f"There is no tool `{call.name}`. {has}")
        if call.raw is not None:
            return _refusal(call, trace, no_object(call, offer.reading))
        if call.unresolved:
            return _refusal(call, trace, nothing_named(call, offer.reading, numbering(trace)))
        try:
            arguments = offer.reading.parse(call, Filling(trace))
        except ValidationError as error:
            return _refusal(call, trace, misfit(call, error, offer.reading, numbering(trace)))
        repeated = None if offer.repeats else self._repeated(call, output, trace)
        return _Due(call, offer, arguments) if repeated is None else _refusal(call, trace, repeated)

    def _repeated(self, call: ToolCall, output: ModelOutput, trace: Trace) -> str | None:
        """Say which earlier call this one repeats, or return None."""
        results = trace.results()
        for earlier in trace.fold(self._identity).like(call):
            if earlier is call:
                break
            if any(earlier is each for each in output.calls):
                return (
                    f"This call of `{call.name}` is identical to an earlier one in the same "
                    "answer. Use the result of that one."
                )
            result = results.get(earlier)
            if result is not None and result.error is None:
                return (
                    f"This call of `{call.name}` is identical to an earlier one, whose result is "
                    f"{numbering(trace).handle(earlier.id)}. Use that result, or change the "
                    "arguments."
                )
        return None


def _offer(tool: Tool[Any], *, repeats: bool) -> _Offer:
    check_frozen(tool.name, tool)
    unbound = getattr(tool, "unbound", ())
    if unbound:
        missing = ", ".join(f"{name}=..." for name in unbound)
        raise ToolDefinitionError(
            tool.name, unbound[0], f"it has no value. Bind it with `{tool.name}.bind({missing})`."
        )
    takes = list(inspect.signature(tool.run).parameters)
    if len(takes) != 1:
        raise ToolDefinitionError(
            tool.name, None, f"`run` takes {takes}. Let it take the call's arguments alone."
        )
    own = getattr(tool, "repeats", None)
    limit = getattr(tool, "turn_limit", None)
    return _Offer(tool, reading_of(tool.arguments), limit, repeats if own is None else own)


async def _results(work: Sequence[_Due | ToolOutput], trace: Trace) -> list[ToolOutputBase]:
    """Run what is due, side by side when there is more than one."""
    if sum(isinstance(each, _Due) for each in work) > 1:
        return await _side_by_side(work, trace)
    results: list[ToolOutputBase] = []
    for each in work:
        results.append(await _run(each, trace, results) if isinstance(each, _Due) else each)
    return results


async def _side_by_side(work: Sequence[_Due | ToolOutput], trace: Trace) -> list[ToolOutputBase]:
    slots: list[asyncio.Task[ToolOutputBase] | ToolOutput] = []
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                if not isinstance(each, _Due):
                    slots.append(each)
                    continue
                task = group.create_task(_in_turn(each, trace, tuple(slots)))
                slots.append(task)
                # An eager task can have failed already, and then the group takes no more.
                if task.done() and (task.cancelled() or task.exception() is not None):
                    break
    except ExceptionGroup as failed:
        raise _first(slots, failed) from None
    return [_done(each) for each in slots]


async def _in_turn(
    due: _Due, trace: Trace, earlier: Sequence[asyncio.Task[ToolOutputBase] | ToolOutput]
) -> ToolOutputBase:
    """Run a call; one with a limit waits for those before it, to see their results."""
    if due.offer.limit is None:
        return await _run(due, trace, ())
    tasks = [each for each in earlier if isinstance(each, asyncio.Task)]
    if tasks:
        await asyncio.wait(tasks)
    return await _run(due, trace, [_done(each) for each in earlier])


async def _run(due: _Due, trace: Trace, earlier: Sequence[ToolOutputBase]) -> ToolOutputBase:
    call, offer, arguments = due.call, due.offer, due.arguments
    if offer.limit is not None:
        view = trace
        if earlier:
            view = trace.followed_by(*earlier)
            arguments = offer.reading.parse(call, Filling(view))
        spent = offer.limit(view)
        if spent is not None:
            return _refusal(call, trace, spent)
    try:
        result: object = await offer.tool.run(arguments)
    except _TOLD as error:
        return _refusal(call, trace, without_secrets(str(error)))
    if not isinstance(result, ToolOutputBase):
        raise ToolResultError(call.name, type(result))
    return stamped(result, call_id=call.id, stream=trace.stream)


def _done(slot: asyncio.Task[ToolOutputBase] | ToolOutput) -> ToolOutputBase:
    return slot.result() if isinstance(slot, asyncio.Task) else slot


def _first(
    slots: Sequence[asyncio.Task[ToolOutputBase] | ToolOutput], failed: ExceptionGroup[Exception]
) -> BaseException:
    """Return the error of the first call that failed, so that the Failure names a plain error."""
    for each in slots:
        if isinstance(each, asyncio.Task) and not each.cancelled():
            error = each.exception()
            if error is not None:
                return error
    return failed


def _refusal(call: ToolCall, trace: Trace, error: str) -> ToolOutput:
    return ToolOutput(call_id=call.id, error=error, stream=trace.stream)


def _check_wholes(
    calls: Sequence[ToolCall], results: Sequence[ToolOutputBase], trace: Trace
) -> None:
    """Refuse a part whose whole is neither in the view nor among the results up to its own."""
    shown: set[str] = set()
    for call, result in zip(calls, results, strict=True):
        elements = tuple(elements_in(result))
        shown.update(each.id for each in elements)
        for each in elements:
            whole = each.ref
            if whole is None or whole in shown:
                continue
            if numbering(trace).by_id(whole) is None:
                raise UnrecordedWholeError(call.name, each.id, whole)


def call_arguments(tool: Tool[Any], call: ToolCall, view: Trace) -> BaseModel | None:
    """Return the arguments that a ToolStep would run a call with, None when it would refuse them.

    A step that decides about a call before it runs, such as an approval, reads them here.

    Args:
        tool: The tool that the call names.
        call: The recorded call.
        view: What the call sees, for the arguments that the log fills in.
    """
    if call.raw is not None or call.unresolved:
        return None
    try:
        return reading_of(tool.arguments).parse(call, Filling(view))
    except ValidationError:
        return None
