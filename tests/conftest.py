"""What every test of the project shares."""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import settings

pytest_plugins = ["pytester"]

# How long an example takes depends on what else the machine does; `make test` bounds whole tests.
settings.register_profile("soev", parent=settings(), deadline=None)
settings.load_profile("soev")

BACKENDS: list[object] = [pytest.param("asyncio", id="asyncio")]

if sys.version_info >= (3, 12):

    def eager_loop() -> asyncio.AbstractEventLoop:
        """Make an event loop whose tasks begin inside the call that creates them."""
        loop = asyncio.new_event_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        return loop

    BACKENDS.append(pytest.param(("asyncio", {"loop_factory": eager_loop}), id="eager"))


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """Run tests that are marked `anyio` on asyncio, and with eager tasks where they exist."""
    backend: object = request.param
    return backend


@pytest.fixture(scope="session", autouse=True)
def _no_blocking_calls() -> Iterator[None]:
    """Fail a test in which code of soev blocks the event loop."""
    with blockbuster_ctx("soev"):
        yield
