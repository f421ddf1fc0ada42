"""Which golden traces become items, and how these behave as tests."""

import pytest

from .shop import PLUGIN, Shop

IMPORT_FAILS = 'raise RuntimeError("the project is imported")\n'


def node_ids(result: pytest.RunResult) -> list[str]:
    """Return the ids that `--collect-only -q` printed."""
    return [line for line in result.outlines if "::" in line]


def test_each_trace_is_one_item(shop: Shop) -> None:
    """One item per trace, in the order of the files, with an id from the path alone."""
    for name in ("z-last", "a-first", "v1.2 ünïcode"):
        shop.add(name)
    assert node_ids(shop.replay("--collect-only", "-q")) == [
        "tests/golden/a-first.soev.jsonl::replay",
        "tests/golden/refund.soev.jsonl::replay",
        "tests/golden/v1.2 ünïcode.soev.jsonl::replay",
        "tests/golden/z-last.soev.jsonl::replay",
    ]


def test_routes_are_items_of_their_own_where_they_are_wanted(shop: Shop) -> None:
    """`soev_routes = true` adds one item for each trace."""
    shop.ini("soev_routes = true")
    result = shop.replay("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "tests?golden?refund.soev.jsonl::replay PASSED*",
            "tests?golden?refund.soev.jsonl::routes PASSED*",
            "1 trace, 3 calls: 1 trace as accepted",
        ]
    )


def test_collecting_imports_nothing_of_the_project(shop: Shop) -> None:
    """`--collect-only` lists traces without the project's code, and exits with 0."""
    (shop.path / "shop.py").write_text(IMPORT_FAILS, "utf-8")
    result = shop.replay("--collect-only", "-q")
    assert (result.ret, len(node_ids(result))) == (pytest.ExitCode.OK, 1)


def test_without_replay_traces_are_no_tests(shop: Shop) -> None:
    """A run that was not asked to replay does not see golden traces."""
    assert shop.run("tests").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_golden_directories_are_added_outside_of_testpaths(shop: Shop) -> None:
    """A run without paths collects `testpaths` and the golden directories."""
    shop.ini('testpaths = ["unit"]')
    shop.pytester.mkdir("unit").joinpath("test_one.py").write_text("def test_one(): pass\n")
    result = shop.replay("--collect-only", "-q")
    assert node_ids(result) == [
        "unit/test_one.py::test_one",
        "tests/golden/refund.soev.jsonl::replay",
    ]


def test_golden_directories_inside_of_testpaths_are_collected_once(shop: Shop) -> None:
    """A golden directory below a collected directory adds nothing."""
    shop.ini('testpaths = ["tests"]')
    assert len(node_ids(shop.replay("--collect-only", "-q"))) == 1
    both = shop.replay("--collect-only", "-q", "tests", "--soev-golden=tests/golden")
    assert len(node_ids(both)) == 1


def test_a_path_on_the_command_line_replays_that_alone(shop: Shop) -> None:
    """What pytest is pointed at is collected, and the ini file's directories are not."""
    shop.add("gift")
    result = shop.replay("--collect-only", "-q", "tests/golden/gift.soev.jsonl")
    assert node_ids(result) == ["tests/golden/gift.soev.jsonl::replay"]
    shop.replay("tests/golden/gift.soev.jsonl::replay").assert_outcomes(passed=1)


def test_the_option_adds_a_directory_to_paths(shop: Shop) -> None:
    """`--soev-golden` is collected also beside a path on the command line."""
    shop.pytester.makepyfile("def test_one(): pass")
    (path,) = shop.path.glob("test_*.py")
    shop.replay(path.name, "--soev-golden=tests/golden").assert_outcomes(passed=2)


def test_marker_and_keyword_select_traces(shop: Shop) -> None:
    """Items carry `soev_replay` and the trace's name, so `-m` and `-k` select them."""
    shop.pytester.makepyfile("def test_one(): pass")
    shop.add("gift")
    shop.replay(".", "-m", "soev_replay").assert_outcomes(passed=2, deselected=1)
    shop.replay(".", "-k", "gift").assert_outcomes(passed=1, deselected=2)


def test_last_failed_runs_the_changed_trace_again(shop: Shop) -> None:
    """`--lf` knows golden items by their ids."""
    shop.add("gift")
    (shop.calls("gift")).unlink()
    shop.pytester.runpytest_inprocess(*PLUGIN, "--soev-replay").assert_outcomes(passed=1, failed=1)
    again = shop.pytester.runpytest_inprocess(*PLUGIN, "--soev-replay", "--lf")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*gift.soev.jsonl*"])


def test_fixtures_of_module_scope_and_conftest_reach_traces(shop: Shop) -> None:
    """An autouse fixture of module scope works, and the nearest `soev_agents` is taken."""
    (shop.golden / "conftest.py").write_text(
        """
import pytest
import shop

@pytest.fixture(scope="module", autouse=True)
def around(request):
    yield request.module.__name__

@pytest.fixture(scope="session")
def soev_agents():
    return shop.agents()
""",
        "utf-8",
    )
    shop.replay("--soev-catalog=nowhere:agents").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "source",
    [
        "agents = made",
        "agents = made()",
        "def agents(): return made()",
        "from soev.adapters import InMemoryTraceStore\nfrom soev.runtime import AgentCatalog\n"
        "agents = AgentCatalog(InMemoryTraceStore(), made(), version='1')",
        "from soev.adapters import InMemoryTraceStore\nfrom soev.runtime import AgentCatalog\n"
        "def agents(model): return AgentCatalog(InMemoryTraceStore(), made(model), version='1')",
    ],
)
def test_agents_come_in_every_accepted_shape(shop: Shop, source: str) -> None:
    """A mapping, a catalog, or a function that returns either, with or without a model."""
    (shop.path / "other.py").write_text(f"from shop import agents as made\n{source}\n", "utf-8")
    shop.replay("--soev-catalog=other:agents").assert_outcomes(passed=1)


def test_verbose_output_keeps_the_names_of_files(shop: Shop) -> None:
    """Pytest rewrites no dot of a trace's name."""
    shop.shorten_prompt()
    result = shop.replay("-vv")
    assert "soev::jsonl" not in result.stdout.str()
    result.stdout.fnmatch_lines(
        ["tests?golden?refund.soev.jsonl::replay FAILED*", "___* refund replay _*"]
    )
