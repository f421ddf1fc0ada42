"""Effects that run: an intent, at most one act, a result, and what settles what was left open."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import count

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Input,
    ModelOutput,
    Request,
    Trace,
    TransientError,
)
from soev.runtime._codec import encode
from soev.runtime._effects import Effector
from soev.runtime._errors import ThreadActiveError
from soev.runtime._runs import Runs
from tests.runtime.deeds import (
    Case,
    Mail,
    Mailer,
    World,
    ask_person,
    died,
    expire,
    mailing,
    points,
    told,
)
from tests.runtime.world import (
    HELLO,
    CountedIds,
    FaultyTraceStore,
    line,
    names,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio

CALM = ["Input", "model", "EffectIntent", "EffectResult", "end", "Ended"]


def failure_in(trace: Sequence[Event]) -> Failure:
    """Return the last event, a Failure."""
    assert isinstance(trace[-1], Failure)
    return trace[-1]


def intent_in(trace: Trace) -> EffectIntent:
    """Return the one intent of a thread."""
    (intent,) = trace.of(EffectIntent)
    return intent


async def test_an_effect_is_an_intent_an_act_and_a_result() -> None:
    """The intent is recorded before the act, with the id that its result and the world know."""
    case = Case()
    trace = await case.thread.send(HELLO)
    assert names(trace) == CALM
    intent, result = trace[2], trace[3]
    assert isinstance(intent, EffectIntent)
    assert isinstance(result, EffectResult)
    assert intent.id == result.intent
    assert (intent.origin, result.origin, result.output) == ("mail", "mail", "sent")
    assert case.world.acts == {intent.id: 1}
    assert trace == await case.thread.trace()


async def test_an_effect_costs_two_appends() -> None:
    """A turn with an effect appends twice more than one without, and so does nothing else."""
    case = Case()
    store = FaultyTraceStore(case.store)
    await thread_of(case.graph, store, Runs()).send(HELLO)
    plain = FaultyTraceStore(InMemoryTraceStore())
    await thread_of(line(a=says("a"), b=says("b")), plain).send(HELLO)
    assert store.calls == {**plain.calls, "append": plain.calls["append"] + 2}


async def test_the_intent_is_durable_before_the_act() -> None:
    """`perform` is called with the intent as the store has it."""
    case = Case()
    case.mailer.hold = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.entered.wait()
    intent = (await case.thread.trace())[-1]
    assert isinstance(intent, EffectIntent)
    assert case.mailer.performed == {intent.id: 1}
    case.mailer.hold.set()
    await running


async def test_an_effect_that_intends_again_gets_another_id() -> None:
    """Two visits of one effect are two intents."""
    world = World()
    mail = Mail(Mailer(world))
    trace = await thread_of(line(a=mail, b=mail)).send(HELLO)  # type: ignore[arg-type]  # both kinds
    assert len({intent.id for intent in trace.of(EffectIntent)}) == 2
    assert set(world.acts.values()) == {1}


async def test_the_points_of_an_effect_are_named() -> None:
    """A harness can strike around each part of an effect."""
    case = Case()
    with points() as passed:
        await case.thread.send(HELLO)
    assert [point for point in passed if point.startswith(("effect", "world"))] == [
        "effect.intending",
        "effect.intended",
        "effect.performing",
        "world.sending",
        "world.changed",
        "effect.performed",
        "effect.recorded",
    ]


async def test_a_crash_at_any_point_is_recovered() -> None:
    """A process that dies at any one point leaves a log that another completes, acting once."""
    case = Case()
    calm = told(await case.thread.send(HELLO))
    for crash in count(1):
        case = Case()
        await case.thread.submit(HELLO)
        if not await died(case.other(), crash):
            break
        await expire(case.store)
        trace = await case.other().resume()
        assert told(trace) == calm
        assert case.world.acts == {intent_in(trace).id: 1}
    assert crash > 20


async def test_a_crash_at_any_two_points_is_recovered() -> None:
    """The same when the second process dies too, in its recovery or after it."""
    calm = told(await Case().thread.send(HELLO))
    for first in count(1):
        for second in count(1):
            case = Case()
            await case.thread.submit(HELLO)
            if not await died(case.other(), first):
                return
            await expire(case.store)
            again = await died(case.other(), second)
            await expire(case.store)
            trace = await case.other().resume()
            assert told(trace) == calm
            assert case.world.acts == {intent_in(trace).id: 1}
            if not again:
                break


@pytest.mark.parametrize(
    ("point", "performed"),
    [("effect.intended", 0), ("effect.performing", 0), ("world.changed", 1)],
)
async def test_recovery_is_asked_once_and_no_act_is_repeated(point: str, performed: int) -> None:
    """After the intent only `recovery` acts: the runtime calls `perform` never again."""
    asked: list[str | None] = []

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        asked.append(intent.id)
        assert trace[-1] == intent
        return [EffectResult(output="settled")]

    case = Case(recovery)
    await case.thread.submit(HELLO)
    assert await died(case.other(), point)
    await expire(case.store)
    trace = await case.other().resume()
    assert names(trace) == CALM
    assert asked == [intent_in(trace).id]
    assert case.mailer.performed.total() == performed


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("call", [2, 3])
async def test_an_append_of_an_effect_without_an_answer_is_repeated(call: int, fault: str) -> None:
    """The log decides: the identical append is made again, and the act happens once."""
    case = Case()
    await case.thread.submit(HELLO)
    store = FaultyTraceStore(case.store)
    store.faults["append", call] = fault
    trace = await case.other(store=store).resume()
    assert names(trace) == CALM
    assert store.batches[call - 1] == store.batches[call]
    assert case.mailer.performed == {intent_in(trace).id: 1}


@pytest.mark.parametrize(
    ("intent", "error_type", "message"),
    [
        (EffectIntent(kind="mail", id="mine"), "ValueError", "with the id 'mine'"),
        (ModelOutput(), "TypeError", "`intend` returned a ModelOutput"),
        (None, "TypeError", "`intend` returned a NoneType"),
        (EffectIntent(kind="mail", args=float("nan")), "UnencodableError", "nan"),
        (EffectIntent(kind="mail", args="x" * 2_000_000), "UnencodableError", "bytes"),
        (KeyError("who"), "KeyError", "who"),
    ],
)
async def test_a_wrong_intent_is_a_failure(intent: object, error_type: str, message: str) -> None:
    """What `intend` raises or returns wrong is a final Failure, and nothing is performed."""

    class Wrong(Mail):
        def intend(self, trace: Trace) -> EffectIntent:
            if isinstance(intent, Exception):
                raise intent
            return intent  # type: ignore[return-value]  # that is what is tested

    case = Case()
    trace = await case.other(mailing(Wrong(case.mailer))).send(HELLO)
    failure = failure_in(trace)
    assert (failure.error_type, failure.transient, failure.origin) == (error_type, False, "mail")
    assert message in failure.message
    assert names(trace) == ["Input", "model", "Failure"]
    assert not case.mailer.performed


async def test_an_intend_that_failed_for_a_moment_is_asked_again() -> None:
    """A TransientError of `intend` is a transient Failure, and a resume intends."""
    case = Case()

    class Once(Mail):
        def intend(self, trace: Trace) -> EffectIntent:
            if not trace.of(Failure):
                raise TransientError("busy")
            return super().intend(trace)

    thread = case.other(mailing(Once(case.mailer)))
    assert failure_in(await thread.send(HELLO)).transient
    assert names(await thread.resume())[3:] == CALM[2:]


@pytest.mark.parametrize(
    ("returns", "error_type", "message"),
    [
        (ModelOutput(), "TypeError", "`perform` returned a ModelOutput"),
        (EffectResult(intent="other"), "ValueError", "the result of the intent 'other'"),
        (EffectResult(output=float("inf")), "UnencodableError", "inf"),
        (EffectResult(output="x" * 2_000_000), "UnencodableError", "bytes"),
    ],
)
async def test_a_wrong_result_is_an_unknown_outcome(
    returns: object, error_type: str, message: str
) -> None:
    """Something else than the intent's result is a Failure, and the next resume recovers."""
    case = Case()
    case.mailer.returns = returns
    trace = await case.thread.send(HELLO)
    failure = failure_in(trace)
    assert (failure.error_type, failure.transient, failure.origin) == (error_type, False, "mail")
    assert message in failure.message
    case.mailer.returns = None
    assert names(await case.thread.resume())[3:] == ["Failure", "EffectResult", "end", "Ended"]
    assert case.world.acts.total() == 1


@pytest.mark.parametrize(
    "error", [TransientError("gone"), OSError("reset"), asyncio.CancelledError()]
)
async def test_an_act_that_raises_is_an_unknown_outcome(error: BaseException) -> None:
    """Raising is a Failure with the intent left open; the next resume recovers it, not sooner."""
    case = Case()
    case.mailer.fails = error
    trace = await case.thread.send(HELLO)
    assert names(trace) == ["Input", "model", "EffectIntent", "Failure"]
    assert failure_in(trace).transient is isinstance(error, TransientError)
    assert (await case.thread.status()).state == "failed"
    with pytest.raises(ThreadActiveError, match="nobody knows yet what became of its 'mail'"):
        await case.thread.submit(HELLO)
    case.mailer.fails = None
    assert names(await case.thread.resume())[4:] == ["EffectResult", "end", "Ended"]
    assert case.world.acts.total() == 1


async def test_a_refusal_of_the_world_is_a_result() -> None:
    """A result with an error is a result: the turn goes on."""
    case = Case()
    case.mailer.returns = EffectResult(error="no such person")
    trace = await case.thread.send(HELLO)
    assert names(trace) == CALM
    assert trace.of(EffectResult)[0].error == "no such person"


async def test_recovery_may_ask_a_person() -> None:
    """A Request of a recovery waits with the intent open, and its answer leads to recovery."""
    case = Case(ask_person)
    case.mailer.fails = OSError("reset")
    await case.thread.send(HELLO)
    trace = await case.thread.resume()
    assert names(trace)[3:] == ["Failure", "Request"]
    assert (await case.thread.status()).state == "waiting"
    assert await case.thread.resume() == trace
    request = trace.latest(Request)
    trace = await case.thread.send(Input(payload="it went out"), answering=request)
    assert names(trace)[5:] == ["Input", "EffectResult", "end", "Ended"]
    assert trace.of(EffectResult)[0].output == "it went out"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([], "`recovery` returned 0 events"),
        ([EffectResult(), EffectResult()], "`recovery` returned 2 events"),
        (EffectResult(), "`recovery` returned a EffectResult"),
        ([ModelOutput()], "`recovery` returned a ModelOutput"),
        ([EffectResult(intent="x")], "the result of the intent 'x'"),
        ([Request(kind="k", actor="person", expects={"type": "no"})], "is no JSON Schema"),
        (TransientError("away"), "away"),
    ],
)
async def test_a_wrong_recovery_leaves_the_intent_open(returned: object, message: str) -> None:
    """What a recovery raises or returns wrong is a Failure, and each resume asks it once."""
    calls = []

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        calls.append(intent.id)
        if isinstance(returned, Exception):
            raise returned
        return returned  # type: ignore[return-value]  # that is what is tested

    case = Case(recovery)
    case.mailer.fails = OSError("reset")
    await case.thread.send(HELLO)
    failure = failure_in(await case.thread.resume())
    assert message in failure.message
    trace = await case.thread.resume()
    assert names(trace)[2:] == ["EffectIntent", "Failure", "Failure", "Failure"]
    assert calls == [trace.of(EffectIntent)[0].id] * 2


async def test_many_failures_of_a_recovery_call_for_a_person() -> None:
    """From the 20th Failure after the intent on, the message says that a person must look."""

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        raise OSError("still down")

    case = Case(recovery)
    case.mailer.fails = OSError("reset")
    trace = await case.thread.send(HELLO)
    for _ in range(20):
        trace = await case.thread.resume()
    failures = trace.of(Failure)
    asked = ["A person must look" in failure.message for failure in failures]
    assert asked == [False] * 19 + [True, True]
    assert "still down" in failures[-1].message


async def test_a_response_begins_the_count_of_failures_anew() -> None:
    """The failures before the last response count no more."""
    calls = count(1)

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        if next(calls) == 19:
            return [Request(kind="effect", actor="person")]
        raise OSError("still down")

    case = Case(recovery)
    case.mailer.fails = OSError("reset")
    trace = await case.thread.send(HELLO)
    for _ in range(19):
        trace = await case.thread.resume()
    request = trace.latest(Request)
    trace = await case.thread.send(Input(payload=1), answering=request)
    assert failure_in(trace).message == "still down"


async def test_a_fork_with_an_open_intent_only_recovers() -> None:
    """A fork that copied an open intent never performs it: its recovery gets the same id."""
    asked: list[str | None] = []

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        asked.append(intent.id)
        return [EffectResult(output="copied")]

    case = Case(recovery)
    trace = await case.thread.send(HELLO)
    fork = await case.thread.fork(at=3)
    assert (await fork.status()).state == "interrupted"
    forked = await fork.resume()
    assert names(forked) == CALM
    assert asked == [intent_in(trace).id] == [intent_in(forked).id]
    assert case.mailer.performed == {intent_in(trace).id: 1}


async def test_a_fork_before_the_intent_intends_anew() -> None:
    """A fork that is cut before an intent is another life: it gets an id of its own."""
    case = Case()
    trace = await case.thread.send(HELLO)
    forked = await (await case.thread.fork(at=2)).resume()
    assert intent_in(forked).id != intent_in(trace).id
    assert case.world.acts == {intent_in(trace).id: 1, intent_in(forked).id: 1}


async def test_intents_take_their_ids_from_the_id_source() -> None:
    """The runtime's own id source makes the id of an intent."""
    case = Case()
    runs = Runs(ids=CountedIds("n"))
    trace = await thread_of(case.graph, case.store, runs).send(HELLO)
    assert str(intent_in(trace).id).startswith("n-")


async def test_a_second_result_is_never_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """A result that came from elsewhere meanwhile is the one, and the turn goes on from it."""
    case = Case()
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.changed.wait()
    intent = (await case.thread.trace())[-1]
    assert isinstance(intent, EffectIntent)
    other = encode(EffectResult(intent=intent.id, output="other", origin="mail"))
    await case.store.append("t-1", [other], after=await case.store.head("t-1"), batch="b")
    case.mailer.linger.set()
    trace = await running
    assert names(trace) == CALM
    assert trace.of(EffectResult)[0].output == "other"
    assert "could not be recorded" in caplog.text


async def test_a_lost_result_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An act of a thread that was deleted elsewhere finishes, and its result goes to the log."""
    case = Case()
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await case.mailer.changed.wait()
    await case.other().delete()
    case.mailer.linger.set()
    with caplog.at_level(logging.WARNING, logger="soev"):
        await asyncio.wait((running,))
    assert "no thread 't-1'" in str(running.exception())
    assert "The result of the 'mail' effect of thread 't-1'" in caplog.text
    assert (await case.store.head("t-1")).position == 0
