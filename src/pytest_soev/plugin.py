"""The pytest plugin: options, hooks and fixtures.

It is loaded in every pytest run of every project that has soev installed, so it imports the
standard library and pytest alone. What it needs of soev it imports when that is asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_soev._recorder import GoldenRecorder
    from pytest_soev._replayed import Replayer
    from pytest_soev.harness import (
        CrashPlan,
        Harness,
        HarnessClock,
        HarnessFactory,
        HarnessWorld,
    )
    from soev.adapters import ScriptedChatModel
    from soev.domain import StoredEvent

OUTSIDE = "code outside of any test"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys of soev."""
    _add_replay_options(parser)
    _add_report_options(parser)
    _add_ini(parser)


def _update_mode(text: str) -> str:
    if text not in ("all", "new"):
        raise argparse.ArgumentTypeError(
            f"takes `all` or `new`, not {text!r}. Write --soev-update=all when a path follows it."
        )
    return text


def _add_replay_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("soev", "soev: golden traces of agents").addoption
    add(
        "--soev-replay",
        action="store_true",
        dest="soev_replay",
        help="Replay golden traces (*.soev.jsonl) with today's code and compare what is sent.",
    )
    add(
        "--soev-golden",
        action="append",
        default=[],
        metavar="DIR",
        dest="soev_golden",
        help="Directory with golden traces, added to the collection. Can be repeated.",
    )
    add(
        "--soev-catalog",
        metavar="MODULE:ATTR",
        dest="soev_catalog",
        help="Where the project's agents come from, such as shop.agents:agents.",
    )
    add(
        "--soev-update",
        nargs="?",
        const="all",
        type=_update_mode,
        metavar="all|new",
        dest="soev_update",
        help="Accept what is sent today: everything, or only what has no accepted file yet.",
    )
    add(
        "--soev-allow-empty",
        action="store_true",
        dest="soev_allow_empty",
        help="Let a run pass that was asked to replay and replayed nothing.",
    )
    add(
        "--soev-live",
        action="store_true",
        dest="soev_live",
        help="Let tests call real models.",
    )
    add(
        "--soev-schedule",
        type=_schedule,
        metavar="TOKEN",
        dest="soev_schedule",
        help="Let `crash_everywhere` run this one schedule, as a failure of it printed.",
    )


def _schedule(text: str) -> str:
    if not text.startswith(("strict:", "wild:")):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no token of a schedule. Copy the whole line that the failure printed."
        )
    return text


def _add_report_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("soev").addoption
    add(
        "--soev-ci",
        choices=("auto", "on", "off"),
        default="auto",
        dest="soev_ci",
        help="Whether this is CI, which writes only by --soev-update on its command line. "
        "auto: what the environment variable CI says.",
    )
    add(
        "--soev-report",
        metavar="DIR",
        dest="soev_report",
        help="Write report.md and report.json into this directory.",
    )
    add(
        "--soev-annotations",
        choices=("auto", "off"),
        default="auto",
        dest="soev_annotations",
        help="Annotations and a step summary where GitHub Actions runs the tests.",
    )
    add(
        "--soev-details",
        action="store_true",
        dest="soev_details",
        help="List every call of every change.",
    )


def _add_ini(parser: pytest.Parser) -> None:
    add = parser.addini
    add("soev_replay", "Replay golden traces in every run.", type="bool", default=False)
    add("soev_golden", "Directories with golden traces.", type="paths", default=[])
    add("soev_catalog", "Where the agents come from: MODULE:ATTR.", type="string", default="")
    add("soev_block_models", "Let no test call a real model.", type="bool", default=True)
    add(
        "soev_unreplayable",
        "What a call that cannot be rebuilt does: fail or warn.",
        type="string",
        default="fail",
    )
    add(
        "soev_obsolete",
        "What a file that nothing needs any more does: fail or warn.",
        type="string",
        default="fail",
    )
    add(
        "soev_max_growth",
        "How much larger than accepted a request may be. Empty for any size.",
        type="string",
        default="10%",
    )
    add("soev_redact", "Patterns to scrub from recordings.", type="linelist", default=[])
    add(
        "soev_not_secret",
        "Values that look like secrets and may be recorded.",
        type="linelist",
        default=[],
    )
    add("soev_routes", "Replay routing decisions too.", type="bool", default=False)


class _Hooks:
    """The hooks that a project may implement in its conftest.py."""

    @pytest.hookspec(firstresult=True)
    def pytest_soev_redact(self, event: StoredEvent) -> StoredEvent | None:
        """Return the event to write into a golden trace in place of this one, or None to keep it.

        Args:
            event: A stored event of the thread that is recorded, with its ids and times scrubbed.
        """


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of soev."""
    pluginmanager.add_hookspecs(_Hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, the guard of real models, and the replay when it is asked for."""
    line = config.addinivalue_line
    line("markers", "soev_replay: a golden trace that is replayed with today's code.")
    line("markers", "soev_live(reason): the test may call real models.")
    line("markers", "soev_golden(name): the golden trace that the test records.")
    config.stash[_GUARD] = _Guard(config)
    if config.getoption("soev_update") is not None:
        from pytest_soev._settings import refuse_implicit_update

        refuse_implicit_update(config)
    if _replays(config):
        from pytest_soev._replay import Replay

        config.pluginmanager.register(Replay(config), "soev-replay")


def _replays(config: pytest.Config) -> bool:
    return bool(config.getoption("soev_replay") or config.getini("soev_replay"))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say in a verbose run that golden traces are left alone."""
    if config.get_verbosity() < 1 or _replays(config):
        return None
    return "soev: golden traces are replayed by --soev-replay"


class _Guard:
    """Keeps real models from being called, once a project has imported soev."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._off = bool(config.getoption("soev_live") or not config.getini("soev_block_models"))
        self._caller: str | None = OUTSIDE

    def stand(self) -> None:
        """Block real models, if soev is imported and they are not blocked yet."""
        if self._off or "soev.domain" not in sys.modules:
            return
        from soev.domain import block_real_models

        self._off = True
        self._config.add_cleanup(block_real_models(lambda: self._caller))

    def enter(self, item: pytest.Item) -> None:
        """Take note of the test that begins; one that is marked live, with why, may call models."""
        marker = item.get_closest_marker("soev_live")
        live = marker is not None and bool(marker.args or marker.kwargs)
        self._caller = None if live else item.name
        self.stand()

    def leave(self) -> None:
        """Take note that no test runs."""
        self._caller = OUTSIDE


_GUARD = pytest.StashKey[_Guard]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let only tests that are marked `soev_live` call real models."""
    guard = item.config.stash[_GUARD]
    guard.enter(item)
    try:
        return (yield)
    finally:
        guard.leave()


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test failed: its harness then has nothing to add."""
    if call.excinfo is not None:
        item.stash[_FAILED] = True
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Look once more, since a fixture of the test may be what imports soev."""
    item.config.stash[_GUARD].stand()


def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> list[str] | None:
    """Explain how two traces, or two requests, differ."""
    if op != "==" or "soev.domain" not in sys.modules:
        return None
    from pytest_soev._explain import explained

    return explained(left, right)


@pytest.fixture(scope="session")
def soev_agents(pytestconfig: pytest.Config) -> Callable[..., Any]:
    """Return a function from a model, or None, to the agents by name. Override it as you like."""
    from pytest_soev._agents import ConfiguredAgents

    return ConfiguredAgents(pytestconfig)


@pytest.fixture
def soev_golden(request: pytest.FixtureRequest, soev_agents: object) -> GoldenRecorder:
    """Return a function that records a thread under --soev-update, and else compares it."""
    from pytest_soev._recorder import GoldenRecorder

    return GoldenRecorder(request, soev_agents)


@pytest.fixture
def soev_replay(pytestconfig: pytest.Config, soev_agents: object) -> Replayer:
    """Return a function that replays a thread, a trace or the path of a golden trace."""
    from pytest_soev._replayed import Replayer

    return Replayer(pytestconfig, soev_agents)


@pytest.fixture(scope="session")
def soev_resources() -> Callable[[Harness], object]:
    """Return a function from the harness to what `build` gets. Override it as you like."""
    return lambda soev: None


@pytest.fixture(scope="session")
def soev_store_factory() -> Callable[..., Any]:
    """Return a function from the clock, or nothing, to a store. Override it as you like."""
    from pytest_soev.harness import in_memory

    return in_memory


# For the session it would keep the `soev_agents` of the first module that asks for it.
@pytest.fixture(scope="module")
def soev_harness(
    pytestconfig: pytest.Config,
    soev_agents: object,
    soev_store_factory: Callable[..., Any],
    soev_resources: Callable[[Harness], object],
) -> HarnessFactory:
    """Return a function that makes a fresh harness; use this one under `@given`."""
    from pytest_soev.harness import HarnessFactory

    schedule = pytestconfig.getoption("soev_schedule")
    return HarnessFactory(soev_agents, soev_store_factory, soev_resources, schedule)


@pytest.fixture
def soev_model() -> ScriptedChatModel:
    """Return the scripted model of `soev`."""
    from soev.adapters import ScriptedChatModel

    return ScriptedChatModel()


@pytest.fixture
def soev_world() -> HarnessWorld:
    """Return the world of `soev`, which records what effects do to it."""
    from pytest_soev.harness import HarnessWorld

    return HarnessWorld()


@pytest.fixture
def soev_clock() -> HarnessClock:
    """Return the clock of `soev`: it moves by `advance(seconds)` alone."""
    from pytest_soev.harness import HarnessClock

    return HarnessClock()


@pytest.fixture
def soev_crash() -> CrashPlan:
    """Return the plan of `soev` that lets the process crash at a named point."""
    from pytest_soev.harness import CrashPlan

    return CrashPlan()


@pytest.fixture
def soev(  # one for each part of the harness
    request: pytest.FixtureRequest,
    soev_harness: HarnessFactory,
    soev_model: ScriptedChatModel,
    soev_world: HarnessWorld,
    soev_clock: HarnessClock,
    soev_crash: CrashPlan,
) -> Generator[Harness, None, None]:
    """Return one fresh harness, and check at the end that its scripts are used up."""
    harness = soev_harness.assembled(
        model=soev_model, world=soev_world, clock=soev_clock, crash=soev_crash
    )
    yield harness
    if not request.node.stash.get(_FAILED, False):
        __tracebackhide__ = True
        harness.check()
