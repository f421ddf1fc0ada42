"""Exit codes: 1 for a trace that is not as accepted, 4 for a run that is set up wrongly."""

import pytest

from .shop import Shop

FAILED, USAGE = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.USAGE_ERROR
OK, EMPTY = pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED


def test_accepted_traces_exit_with_0(shop: Shop) -> None:
    """A replay in which nothing changed is green."""
    assert shop.replay().ret == OK


def test_a_changed_trace_exits_with_1(shop: Shop) -> None:
    """A change fails the run."""
    shop.shorten_prompt()
    assert shop.replay().ret == FAILED


def test_no_trace_exits_with_4(empty_shop: Shop) -> None:
    """A replay that finds nothing is not green, whatever else passed."""
    empty_shop.pytester.makepyfile("def test_one(): pass")
    result = empty_shop.replay()
    assert result.ret == USAGE
    result.stdout.fnmatch_lines(["No golden trace (?.soev.jsonl) was found. *soev_golden*"])


def test_no_trace_exits_with_4_in_workers_too(empty_shop: Shop) -> None:
    """The controller decides, also when workers ran the tests."""
    empty_shop.pytester.makepyfile("def test_one(): pass")
    result = empty_shop.replay_in_workers()
    assert result.ret == USAGE
    result.stdout.fnmatch_lines(["No golden trace *", "*1 passed*"])


def test_an_empty_replay_can_be_allowed(empty_shop: Shop) -> None:
    """`--soev-allow-empty` leaves pytest's own exit code."""
    assert empty_shop.replay("--soev-allow-empty").ret == EMPTY


def test_a_replay_that_deselects_every_trace_exits_with_4(shop: Shop) -> None:
    """Options that leave all traces out do not make a replay green."""
    shop.pytester.makepyfile("def test_one(): pass")
    result = shop.replay(".", "-k", "test_one")
    assert result.ret == USAGE
    result.stdout.fnmatch_lines(["No golden trace was replayed: the options *"])


def test_the_ini_key_alone_asks_nothing_of_a_run_with_paths(shop: Shop) -> None:
    """With `soev_replay = true` a run of one test file, or of chosen tests, stays green."""
    shop.ini("soev_replay = true")
    shop.pytester.makepyfile("def test_one(): pass")
    (path,) = shop.path.glob("test_*.py")
    assert shop.run(path.name).ret == OK
    assert shop.run("-m", "not soev_replay", ".").ret == OK


def test_nowhere_to_take_agents_from_exits_with_4(shop: Shop) -> None:
    """The end of the run shows the three ways to name the agents, once for all traces."""
    shop.pytester.makepyprojecttoml('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    shop.add("gift")
    result = shop.replay()
    assert result.ret == USAGE
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*= soev replay =*",
            "No agents to hold golden traces to. *",
            "  1. a fixture `soev_agents` in a conftest.py above the traces*",
            "  2. the option --soev-catalog=shop.agents:agents",
            "  3. the ini key soev_catalog = shop.agents:agents",
        ]
    )
    assert result.stdout.str().count("3. the ini key") == 1


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("shop", "*not of the form `package.module:attribute`*"),
        ("nowhere.at_all:agents", "*there is no module `nowhere` to import*"),
        ("shop:lost", "*`shop` has no attribute `lost`*"),
        ("shop:PROMPT", "*it holds a str, no catalog*"),
    ],
)
def test_a_catalog_that_gives_no_agents_exits_with_4(shop: Shop, place: str, message: str) -> None:
    """The place and what is wrong with it are named."""
    result = shop.replay(f"--soev-catalog={place}")
    assert result.ret == USAGE
    result.stdout.fnmatch_lines([f"*The agents at '{place}' cannot be had: {message}"])


def test_a_catalog_that_raises_shows_its_own_traceback(shop: Shop) -> None:
    """An error of the project's code is the project's, and pytest prints it."""
    shop.edit("PROMPT = ", "import json\njson.loads('no json')\nPROMPT = ")
    result = shop.replay()
    assert result.ret == FAILED
    result.stdout.fnmatch_lines(["shop.py:*", "*JSONDecodeError*"])


def test_failing_tests_keep_the_exit_code_1(shop: Shop) -> None:
    """A test that fails beside green traces fails the run as ever."""
    shop.pytester.makepyfile("def test_one(): assert 0")
    assert shop.replay(".").ret == FAILED
