"""The registry of this process's runs."""

import asyncio
import logging

import pytest

from soev.runtime._runs import Runs
from soev.runtime._system import SystemIds
from tests.clocks import FakeClock
from tests.runtime.world import HELLO, CountedIds, Gate, line, names, says, thread_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("ttl", [0.999, 0, -1, float("nan"), float("inf")])
def test_a_lease_too_short_to_renew_is_refused(ttl: float) -> None:
    """With the machine's clock a lease lasts at least a second."""
    with pytest.raises(ValueError, match=r"cannot be renewed in time\. Use `lease_ttl=1` or more"):
        Runs(lease_ttl=ttl)


def test_another_clock_allows_a_shorter_lease() -> None:
    """A clock of the caller's own may move as it likes, but a lease takes some time."""
    assert Runs(lease_ttl=0.5, clock=FakeClock()).lease_ttl == 0.5
    with pytest.raises(ValueError, match="A lease of 0 seconds"):
        Runs(lease_ttl=0, clock=FakeClock())


def test_each_registry_has_an_owner_of_its_own() -> None:
    """The owner's name is a fresh id."""
    assert Runs().owner != Runs().owner
    assert Runs(ids=CountedIds("owner")).owner == "owner-1"


async def test_start_returns_the_running_task() -> None:
    """A thread has one task, and a second coroutine is not even made."""
    runs, ended = Runs(), asyncio.Event()
    made: list[int] = []

    async def run() -> None:
        made.append(1)
        await ended.wait()

    task = runs.start("t-1", run, 7)
    assert runs.start("t-1", run, 8) is task
    assert (runs.turn("t-1"), runs.turn("t-2")) == (7, None)
    ended.set()
    assert task is not None
    await task
    assert (made, runs.task("t-1"), runs.turn("t-1")) == ([1], None, None)


async def test_stop_of_a_thread_that_does_not_run_does_nothing() -> None:
    """There is nothing to stop, and nothing happens."""
    await Runs().stop("t-1")


async def test_stop_can_only_ask() -> None:
    """Without `wait` a stop returns before the run has stopped."""
    gate, runs = Gate(), Runs()
    thread = thread_of(line(a=gate), runs=runs)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await runs.stop("t-1", wait=False)
    assert runs.task("t-1") is not None
    assert names(await running) == ["Input"]
    assert gate.cancelled
    assert (await thread.status()).state == "interrupted"


async def test_close_lets_runs_end_in_time() -> None:
    """A run that ends within the timeout is not stopped."""
    gate, runs = Gate(), Runs()
    thread = thread_of(line(a=gate), runs=runs)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    closing = asyncio.create_task(runs.close(60))
    await asyncio.sleep(0)
    gate.opened.set()
    await closing
    assert names(await running) == ["Input", "gate", "Ended"]


async def test_close_stops_the_rest_and_starts_nothing() -> None:
    """After the timeout runs are stopped, their leases are free, and nothing starts any more."""
    gate, runs = Gate(), Runs()
    thread = thread_of(line(a=gate), runs=runs)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await runs.close(0)
    assert gate.cancelled
    assert not await thread.running()
    assert names(await running) == ["Input"]
    assert names(await thread.resume()) == ["Input"]
    assert runs.start("t-2", gate.opened.wait) is None
    assert [entry async for entry in thread.stream()] == []


async def test_close_without_runs_returns_at_once() -> None:
    """Nothing runs, so nothing is waited for."""
    runs = Runs()
    await runs.close(60)
    assert runs.closed


async def test_an_error_that_nobody_awaits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A run that ends with an error says so, also when its caller has gone."""
    runs = Runs()

    async def run() -> None:
        raise RuntimeError("token sk-abcdefghijklmnopqrstuvwx")

    with caplog.at_level(logging.WARNING, logger="soev"):
        task = runs.start("t-1", run)
        assert task is not None
        await asyncio.wait((task,))
        await asyncio.sleep(0)
    assert "The run of thread 't-1' ended: RuntimeError: token <secret>" in caplog.text


async def test_one_registry_runs_many_threads() -> None:
    """Threads do not wait for each other."""
    runs = Runs()
    threads = [thread_of(line(a=says("hi")), runs=runs, thread_id=f"t-{n}") for n in range(20)]
    traces = await asyncio.gather(*(thread.send(HELLO) for thread in threads))
    assert {tuple(names(trace)) for trace in traces} == {("Input", "hi", "Ended")}


def test_ids_are_fresh() -> None:
    """Each id is 128 bits, as 32 digits, and never comes again."""
    ids = {SystemIds().new() for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(bytes.fromhex(each)) for each in ids} == {16}
