"""How the ready policies settle an open intent."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from soev.adapters import call, say
from soev.domain import (
    Cancelled,
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Input,
    JsonValue,
    Request,
    Trace,
    TransientError,
)
from soev.runtime import EffectRecovery, InputDeniedError
from soev.toolkit import ask_person, await_result, check_with, perform_again
from tests.toolkit.deeds import Bank, Shop, kinds, refund, requests, results

pytestmark = pytest.mark.anyio

INTENT = EffectIntent(kind="refund", args={"order": "o-1"}, id="i-1", origin="effect.refund")
HAPPENED: JsonValue = {"happened": True, "output": {"receipt": 7}}
NOTHING: JsonValue = {"happened": False}
CUT = Cancelled(input=1)
BROKEN = Failure(error_type="E", message="", transient=True)


def asked(*answers: JsonValue) -> list[Event]:
    """Return requests of the effect, each answered."""
    events: list[Event] = []
    for answer in answers:
        seq = 3 + len(events)
        events += [Request(kind="effect", actor="person"), Input(payload=answer, answers=seq)]
    return events


async def settled(recovery: EffectRecovery, bank: Bank, *after: Event) -> Sequence[Event]:
    """Ask a recovery about the intent, with these events after it."""
    return await recovery(Trace([Input(payload="Go"), INTENT, *after]), INTENT, bank)


def outcome(events: Sequence[Event], bank: Bank) -> str:
    """Say what a recovery did."""
    (event,) = events
    if isinstance(event, Request):
        assert (event.kind, event.actor) == ("effect", "person")
        return "asks"
    assert isinstance(event, EffectResult)
    if event.error is not None:
        return "error"
    return "performs" if bank.acts["i-1"] else "believes"


def answers(found: object) -> EffectRecovery:
    """Make a recovery whose query answers this."""

    async def query(intent: EffectIntent) -> Any:
        return found

    return check_with(query)


FOUND = answers(EffectResult(output=1))
NOT_DONE, UNKNOWN = answers("not done"), answers(None)


@pytest.mark.parametrize(
    ("recovery", "after", "expected"),
    [
        (ask_person, [], "asks"),
        (ask_person, asked(HAPPENED), "believes"),
        (ask_person, asked(NOTHING), "performs"),
        (ask_person, [*asked(NOTHING), BROKEN], "asks"),
        (ask_person, [*asked(HAPPENED), BROKEN], "believes"),
        (ask_person, asked(NOTHING, HAPPENED), "believes"),
        (ask_person, asked({"other": 1}), "asks"),
        (ask_person, [CUT], "asks"),
        (ask_person, [CUT, *asked(NOTHING)], "error"),
        (ask_person, [CUT, *asked(HAPPENED)], "believes"),
        (ask_person, [*asked(NOTHING), CUT], "asks"),
        (perform_again, [], "performs"),
        (perform_again, asked(HAPPENED), "believes"),
        (perform_again, asked(NOTHING), "performs"),
        (perform_again, [BROKEN], "performs"),
        (perform_again, [CUT], "asks"),
        (perform_again, [CUT, *asked(NOTHING)], "error"),
        (perform_again, [CUT, *asked(HAPPENED)], "believes"),
        (FOUND, [], "believes"),
        (FOUND, [CUT], "believes"),
        (NOT_DONE, [], "performs"),
        (NOT_DONE, asked(HAPPENED), "believes"),
        (NOT_DONE, [CUT], "asks"),
        (NOT_DONE, [CUT, *asked(NOTHING)], "error"),
        (UNKNOWN, [], "asks"),
        (UNKNOWN, asked(NOTHING), "performs"),
        (UNKNOWN, [CUT, *asked(NOTHING)], "error"),
    ],
)
async def test_each_policy_follows_its_table(
    recovery: EffectRecovery, after: list[Event], expected: str
) -> None:
    """What is known decides; a cancelled turn never performs; doubt asks a person."""
    bank = Bank()
    assert outcome(await settled(recovery, bank, *after), bank) == expected


async def test_a_person_can_say_what_the_world_answered() -> None:
    """The output of the answer is the output of the result."""
    assert await settled(ask_person, Bank(), *asked(HAPPENED)) == [
        EffectResult(output={"receipt": 7})
    ]


async def test_the_question_names_the_act() -> None:
    """A person reads what it is about, and the answer has a form."""
    (request,) = await settled(ask_person, Bank())
    assert isinstance(request, Request)
    assert 'refund {"order":"o-1"}' in str(request.prompt)
    assert request.expects is not None
    assert request.expects["required"] == ["happened"]


async def test_an_answer_of_an_earlier_effect_does_not_count() -> None:
    """What a person said about another intent says nothing about this one."""
    earlier = [*asked(HAPPENED), EffectResult(intent="i-0"), INTENT]
    assert outcome(await settled(ask_person, Bank(), *earlier), Bank()) == "asks"


async def test_a_query_that_answers_otherwise_is_an_error() -> None:
    """A truth value is no answer, so the intent stays open."""
    with pytest.raises(TypeError, match=r"answered True. Answer an `EffectResult`"):
        await settled(answers(True), Bank())


async def test_a_repeated_act_is_bounded_by_the_declared_timeout() -> None:
    """A recovery performs within the effector's time, as the first try did."""
    bank = Bank(timeout=0.001)
    bank.hold = asyncio.Event()
    with pytest.raises(TimeoutError, match="took longer than its effector's `timeout`"):
        await settled(perform_again, bank)


async def test_an_error_of_the_act_itself_is_passed_on() -> None:
    """A TimeoutError of the world is the world's own."""
    bank = Bank(timeout=60)
    bank.fails = [TimeoutError("the bank is slow")]
    with pytest.raises(TimeoutError, match="the bank is slow"):
        await settled(perform_again, bank)


async def test_await_result_waits_for_the_act() -> None:
    """The act goes on, and its result is what is recorded."""
    bank = Bank()
    bank.hold = asyncio.Event()
    performing = asyncio.create_task(bank.perform(INTENT))
    deciding = asyncio.create_task(
        _decided(await_result(Trace([Input()]), INTENT, bank, performing))
    )
    await bank.entered.wait()
    bank.hold.set()
    assert await deciding == [EffectResult(output={"paid": True})]


async def _decided(deciding: Any) -> Sequence[Event]:
    found: Sequence[Event] = await deciding
    return found


@pytest.mark.parametrize("how", ["cancelled", "raised"])
async def test_await_result_leaves_the_rest_to_recovery(how: str) -> None:
    """An act that never began, or that raised, says nothing."""
    bank = Bank()
    bank.fails = [OSError("gone")]
    performing = asyncio.create_task(bank.perform(INTENT))
    if how == "cancelled":
        performing.cancel()
    assert await await_result(Trace([Input()]), INTENT, bank, performing) == ()


RECOVERIES = ["ask_person", "perform_again", "check_with"]
POINTS = [
    "effect.intending", "effect.intended", "effect.performing", "bank.paying", "bank.paid",
    "effect.performed", "effect.recorded",
]  # fmt: skip


def shop_with(recovery: str, bank: Bank) -> Shop:
    """Make a shop whose refunds are settled by a policy."""
    chosen = {
        "ask_person": ask_person,
        "perform_again": perform_again,
        "check_with": check_with(bank.find),
    }[recovery]
    bank.drops = recovery == "perform_again"
    tool = refund(bank, recovery=chosen)
    return Shop(call("refund", order="o-1"), say("Done."), effects=(tool,))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("recovery", RECOVERIES)
async def test_a_crash_around_the_act_pays_once(recovery: str, point: str) -> None:
    """Wherever the process dies, one intent is one act, and the model reads one result."""
    bank = Bank()
    shop = shop_with(recovery, bank)
    await shop.open()
    assert await shop.dies(point)
    trace = await shop.resume()
    for pending in (await shop.status()).pending:
        assert pending.event.kind == "effect"
        trace = await shop.answer({"happened": sum(bank.acts.values()) > 0})
    assert list(bank.acts.values()) == [1]
    assert len(trace.of(EffectIntent)) == len(trace.of(EffectResult)) == len(results(trace)) == 1
    assert trace.of(EffectIntent)[0].id == next(iter(bank.acts))
    assert (await shop.status()).state == "finished"


@pytest.mark.parametrize("point", ["bank.paying", "bank.paid"])
@pytest.mark.parametrize("recovery", ["perform_again", "check_with"])
async def test_a_crash_inside_a_recovery_pays_once(recovery: str, point: str) -> None:
    """A recovery that died is repeated, and the world still has one act."""
    bank = Bank()
    shop = shop_with(recovery, bank)
    await shop.open()
    assert await shop.dies("effect.performing")
    lease = (await shop.store.head("t")).lease
    assert lease is not None
    await shop.store.release(lease)
    assert await shop.dies(point)
    assert results(await shop.resume())[0].startswith("{")
    assert list(bank.acts.values()) == [1]


@pytest.mark.parametrize("recovery", RECOVERIES)
async def test_a_cancelled_turn_performs_nothing(recovery: str) -> None:
    """After a cancel a person settles the intent, and what did not happen is an error."""
    bank = Bank()
    bank.hold = asyncio.Event()
    shop = shop_with(recovery, bank)
    thread = await shop.open()
    running = asyncio.create_task(thread.resume())
    await bank.entered.wait()
    await thread.cancel()
    await running
    bank.hold = None
    assert kinds(await shop.resume())[-2:] == ["Cancelled", "Request"]
    trace = await shop.answer(NOTHING)
    assert kinds(trace)[-2:] == ["Input", "EffectResult"]
    assert trace.of(EffectResult)[0].error is not None
    assert bank.acts.total() == 0
    assert (await shop.status()).state == "cancelled"


async def test_await_result_records_the_act_of_a_cancelled_turn() -> None:
    """The result stands after the cancel, and nothing is left to settle."""
    bank = Bank()
    bank.hold = asyncio.Event()
    shop = Shop(call("refund", order="o-1"), effects=(refund(bank, cancellation=await_result),))
    thread = await shop.open()
    running = asyncio.create_task(thread.resume())
    await bank.entered.wait()
    await thread.cancel()
    bank.hold.set()
    assert kinds(await running)[-2:] == ["Cancelled", "EffectResult"]
    assert list(bank.acts.values()) == [1]


async def test_a_failed_attempt_after_an_answer_asks_again() -> None:
    """A person's no holds for one attempt: when its outcome is unknown too, they are asked."""
    bank = Bank()
    bank.fails = [TransientError("lost"), TransientError("lost again")]
    shop = Shop(call("refund", order="o-1"), say("Done."), effects=(refund(bank),))
    await shop.say()
    assert requests(await shop.resume()) == ["effect"]
    bank.acts.clear()
    assert kinds(await shop.answer(NOTHING))[-1] == "Failure"
    assert requests(await shop.resume()) == ["effect", "effect"]
    trace = await shop.answer(HAPPENED)
    assert results(trace) == ['{"receipt":7}']
    assert list(bank.acts.values()) == [1]


async def test_an_answer_that_does_not_fit_is_refused() -> None:
    """The request says what it takes."""
    bank = Bank()
    bank.fails = [TransientError("lost")]
    shop = Shop(call("refund", order="o-1"), say("Done."), effects=(refund(bank),))
    await shop.say()
    await shop.resume()
    refused: list[JsonValue] = [
        True,
        {"happened": "yes"},
        {"output": 1},
        {"happened": True, "by": "me"},
    ]
    for wrong in refused:
        with pytest.raises(InputDeniedError):
            await shop.answer(wrong)
