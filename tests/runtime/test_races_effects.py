"""Races between callers and a run with effects, branches and tasks: one winner, named losers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    EffectIntent,
    EffectResult,
    Input,
    LeaseHeldError,
    Request,
    SoevError,
    StoreUnavailableError,
    Trace,
    UnknownThreadError,
)
from soev.runtime._errors import InputDeniedError, NothingToCancelError, ThreadActiveError
from soev.runtime._graph import Graph
from soev.runtime._runs import Runs
from soev.runtime._thread import Thread
from tests.runtime.deeds import Case, Mail, Mailer, World, ask_person, await_result, told
from tests.runtime.turns import graph_of
from tests.runtime.world import (
    HELLO,
    FaultyTraceStore,
    asks,
    line,
    names,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio

AFTER_CANCELLED = {"EffectResult", "Request", "Input", "Failure"}


def busy(world: World) -> Graph:
    """Make a graph of branches with effects, a request, and an effect after the join."""
    mails = {name: Mail(Mailer(world)) for name in ("x", "y", "last")}
    nodes = {"a": says("a"), **mails, "z": says("z"), "end": says("end")}
    edges = {"a": "x y z", "x": "end", "y": "end", "z": "end", "end": "last"}
    return graph_of(nodes, edges, joins="end")


async def at_each_append(
    act: Callable[[Thread], Coroutine[Any, Any, object]], check: Callable[[Trace, World], None]
) -> int:
    """Let somebody outside act in front of each append of a run, one run for each append."""
    call = 0
    while True:
        call += 1
        memory, world = InMemoryTraceStore(), World()
        store, outside = FaultyTraceStore(memory), thread_of(None, memory)
        await outside.submit(HELLO)
        struck = False

        async def strike(number: int, call: int = call, outside: Thread = outside) -> None:
            nonlocal struck
            if number == call:
                struck = True
                await act(outside)

        store.hooks["append"] = strike
        try:
            await thread_of(busy(world), store, Runs()).resume()
        except UnknownThreadError:
            assert (await memory.head("t-1")).position == 0
        if not struck:
            return call
        assert not await outside.running()
        check(await outside.trace(), world)


async def test_cancel_against_each_append() -> None:
    """Cancelled comes once, at one place; after it only what belongs to open intents."""

    async def cancel(outside: Thread) -> None:
        await outside.cancel()

    def check(trace: Trace, world: World) -> None:
        after = names(trace)[names(trace).index("Cancelled") + 1 :]
        assert set(after) <= AFTER_CANCELLED
        assert names(trace).count("Cancelled") == 1
        intents = {intent.id for intent in trace.of(EffectIntent)}
        assert set(world.acts) <= intents
        assert all(acts == 1 for acts in world.acts.values())

    assert await at_each_append(cancel, check) > 8


async def test_delete_against_each_append() -> None:
    """A thread that is deleted while it runs gets no event any more."""

    async def delete(outside: Thread) -> None:
        await outside.delete()

    def check(trace: Trace, world: World) -> None:
        assert len(trace) == 0

    assert await at_each_append(delete, check) > 8


async def test_a_fresh_input_against_each_append() -> None:
    """A fresh input is refused for as long as the turn goes on."""

    async def submit(outside: Thread) -> None:
        with pytest.raises(ThreadActiveError, match="its turn is running"):
            await outside.submit(HELLO)

    def check(trace: Trace, world: World) -> None:
        assert names(trace)[-1] == "Ended"
        assert sorted(world.acts.values()) == [1, 1, 1]

    assert await at_each_append(submit, check) > 8


async def test_a_fork_against_each_append() -> None:
    """A fork that is taken meanwhile is a prefix, and runs to an end of its own."""
    forks: list[Thread] = []

    async def fork(outside: Thread) -> None:
        forks.append(await outside.fork(at=(await outside.status()).position))

    def check(trace: Trace, world: World) -> None:
        assert names(trace)[-1] == "Ended"

    assert await at_each_append(fork, check) > 8
    for each in forks:
        trace = await thread_of(busy(World()), each._store, thread_id=each.id).resume()
        assert names(trace)[-1] == "Ended"


async def test_a_store_that_fails_at_each_append() -> None:
    """Whatever append has no answer, the log is that of a calm run, with one act per intent."""
    calm = told(await thread_of(busy(World())).send(HELLO))
    for fault in ("before", "after"):
        for call in range(1, 10):
            memory, world = InMemoryTraceStore(), World()
            await thread_of(None, memory).submit(HELLO)
            store = FaultyTraceStore(memory)
            store.faults["append", call] = fault
            assert told(await thread_of(busy(world), store, Runs()).resume()) == calm
            assert sorted(world.acts.values()) == [1, 1, 1]


async def test_a_response_against_a_cancel() -> None:
    """A response that comes second is denied; the recovery asks again, and is answered once."""
    case = Case(ask_person)
    case.mailer.fails = OSError("reset")
    await case.thread.send(HELLO)
    first = (await case.thread.resume()).latest(Request)
    await case.thread.cancel()
    with pytest.raises(InputDeniedError, match="does not wait"):
        await case.thread.submit(Input(payload=1), answering=first)
    again = (await case.thread.resume()).latest(Request)
    trace = await case.thread.send(Input(payload=1), answering=again)
    assert names(trace)[4:] == ["Request", "Cancelled", "Request", "Input", "EffectResult"]
    with pytest.raises(InputDeniedError, match="does not wait"):
        await case.thread.submit(Input(payload=2), answering=again)
    with pytest.raises(NothingToCancelError, match="its turn is cancelled"):
        await case.thread.cancel()


async def test_a_response_that_a_cancel_overtook_is_denied() -> None:
    """A request without an open intent waits no more once its turn is cancelled."""
    thread = thread_of(line(ask=asks(), end=says("end")))
    request = (await thread.send(HELLO)).latest(Request)
    await thread.cancel()
    with pytest.raises(InputDeniedError, match="does not wait"):
        await thread.submit(Input(payload=1), answering=request)


async def test_two_responses_to_a_request_of_a_recovery() -> None:
    """One is recorded, the other denied, and recovery runs once."""
    case = Case(ask_person)
    case.mailer.fails = OSError("reset")
    await case.thread.send(HELLO)
    request = (await case.thread.resume()).latest(Request)
    answers = await asyncio.gather(
        *(case.other().submit(Input(payload=n), answering=request) for n in range(2)),
        return_exceptions=True,
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["InputDeniedError", "LogEntry"]
    trace = await case.thread.resume()
    assert len(trace.of(EffectResult)) == 1


async def test_a_cancel_and_a_new_input_wait_for_the_decision() -> None:
    """While a cancelled effect's decision is out, a fresh input is refused; then it gets a run."""
    case = Case(cancellation=await_result)
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.changed.wait()
    await case.thread.cancel()
    with pytest.raises(ThreadActiveError, match=r"became of its 'mail' effect|is running"):
        await case.thread.submit(HELLO)
    case.mailer.linger.set()
    while not (await case.thread.trace()).of(EffectResult):
        await case.store.wait("t-1", after=await case.store.head("t-1"), timeout=5)
    trace = await case.thread.send(HELLO)
    assert names(trace)[3:6] == ["Cancelled", "EffectResult", "Input"]
    assert names(trace)[-1] == "Ended"
    await running
    assert sorted(case.world.acts.values()) == [1, 1]


async def test_two_resumes_of_an_open_intent_recover_once() -> None:
    """In one process they join; another process is refused and records nothing."""
    asked, answered = asyncio.Event(), asyncio.Event()
    calls = []

    async def recovery(trace: Trace, intent: EffectIntent, effector: object) -> list[EffectResult]:
        calls.append(intent.id)
        asked.set()
        await answered.wait()
        return [EffectResult()]

    case = Case(recovery)
    case.mailer.fails = OSError("reset")
    await case.thread.send(HELLO)
    first = asyncio.create_task(case.thread.resume())
    await asked.wait()
    second = asyncio.create_task(case.thread.resume())
    with pytest.raises(LeaseHeldError):
        await case.other().resume()
    answered.set()
    assert await first == await second
    assert len(calls) == 1


async def test_close_against_submit_and_resume() -> None:
    """Once `close` began nothing starts, and what ran is settled and given back."""
    case = Case(cancellation=await_result)
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.changed.wait()
    closing = asyncio.create_task(case.runs.close(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert names(await case.other(store=case.store).trace())[-1] == "EffectIntent"
    case.mailer.linger.set()
    await closing
    assert names(await running)[-1] == "EffectResult"
    assert await case.thread.resume() == await running
    assert not await case.thread.running()


async def test_delete_while_an_effect_decides_and_an_id_that_is_used_again() -> None:
    """The old run writes nothing into the new thread of the same id."""
    case = Case()
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.changed.wait()
    other = case.other(line(a=says("new")))
    await other.delete()
    assert names(await other.send(HELLO)) == ["Input", "new", "Ended"]
    case.mailer.linger.set()
    with pytest.raises(UnknownThreadError):
        await running
    assert names(await other.trace()) == ["Input", "new", "Ended"]


async def test_follow_ends_after_the_last_entry_of_a_stopped_effect() -> None:
    """A reader that follows sees what the cancellation decided, then ends."""
    case = Case(cancellation=await_result)
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.changed.wait()

    async def follow() -> list[str]:
        return names([entry.event async for entry in case.other().follow()])

    following = asyncio.create_task(follow())
    await case.thread.cancel()
    case.mailer.linger.set()
    await running
    assert (await following)[2:] == ["EffectIntent", "Cancelled", "EffectResult"]


async def test_an_outage_at_the_result_ends_without_another_act() -> None:
    """A store that stays away ends the run at its deadline; later recovery settles the intent."""
    case = Case()
    await case.thread.submit(HELLO)
    store = FaultyTraceStore(case.store)
    store.faults["append", 3] = StoreUnavailableError("append", "a full disk")
    store.faults["append", 4] = ValueError("a bug")
    with pytest.raises((SoevError, ValueError), match="a bug"):
        await case.other(store=store).resume()
    assert names(await case.thread.resume())[2:] == ["EffectIntent", "EffectResult", "end", "Ended"]
    assert case.world.acts.total() == 1
