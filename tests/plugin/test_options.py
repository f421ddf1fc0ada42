"""Options, ini keys, markers and the header, in each place where a project may write them."""

import pytest

from .shop import PLUGIN, Shop

USAGE = pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--soev-update=old"], "*--soev-update: takes `all` or `new`, not 'old'*"),
        (["--soev-update", "tests"], "*Write --soev-update=all when a path follows it.*"),
        (["--soev-ci=maybe"], "*--soev-ci: invalid choice: 'maybe'*"),
        (["--soev-annotations=on"], "*--soev-annotations: invalid choice: 'on'*"),
        (["--soev-golden"], "*--soev-golden: expected one argument*"),
        (["--soev-replay", "--soev-golden=nowhere"], "*--soev-golden names *nowhere*"),
    ],
)
def test_a_wrong_option_ends_the_run(shop: Shop, args: list[str], message: str) -> None:
    """A value that does not fit is named with what would fit, and the exit code is 4."""
    result = shop.run(*args)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('soev_golden = ["lost"]', "*soev_golden in the ini file names *lost*no directory*"),
        ('soev_unreplayable = "ask"', "*soev_unreplayable = 'ask'*write `fail` or `warn`*"),
        ('soev_obsolete = "ask"', "*soev_obsolete = 'ask'*write `fail` or `warn`*"),
        ('soev_max_growth = "0.1"', "*soev_max_growth = '0.1'*a percentage such as `10%`*"),
        ('soev_max_growth = "-5%"', "*soev_max_growth = '-5%'*"),
        ('soev_max_growth = "inf%"', "*soev_max_growth = 'inf%'*"),
    ],
)
def test_a_wrong_ini_value_ends_a_replay(shop: Shop, line: str, message: str) -> None:
    """A value of the ini file that does not fit is named, and the exit code is 4."""
    shop.ini(line)
    result = shop.replay()
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\npythonpath = ["."]\nsoev_replay = true\n'
            'soev_catalog = "shop:agents"\nsoev_golden = ["kept"]\n',
        ),
        (
            "pytest.ini",
            "[pytest]\npythonpath = .\nsoev_replay = true\nsoev_catalog = shop:agents\n"
            "soev_golden = kept\n",
        ),
        pytest.param(
            "pytest.toml",
            '[pytest]\npythonpath = ["."]\nsoev_replay = true\nsoev_catalog = "shop:agents"\n'
            'soev_golden = ["kept"]\n',
            marks=pytest.mark.skipif(
                pytest.version_tuple < (9,), reason="pytest 8 does not read pytest.toml"
            ),
        ),
    ],
)
def test_every_ini_file_can_turn_the_replay_on(shop: Shop, file: str, text: str) -> None:
    """The keys work in each kind of ini file, and directories are relative to it."""
    (shop.path / "pyproject.toml").unlink()
    (shop.path / file).write_text(text, "utf-8")
    shop.golden.rename(shop.path / "kept")
    result = shop.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["soev: replay of 1 trace in kept, catalog shop:agents", "kept?refund.soev.jsonl .*"]
    )


def test_strict_markers_and_config_pass(shop: Shop) -> None:
    """With `--strict-markers` and `--strict-config` our markers and keys are known."""
    shop.ini('soev_obsolete = "warn"')
    shop.pytester.makepyfile(
        """
        import pytest

        @pytest.mark.soev_live("tries the real thing")
        @pytest.mark.soev_golden("refund")
        def test_marked():
            pass
        """
    )
    shop.replay("--strict-markers", "--strict-config", ".").assert_outcomes(passed=2)


def test_markers_are_documented(pytester: pytest.Pytester) -> None:
    """`pytest --markers` tells what each marker is for."""
    result = pytester.runpytest_inprocess(*PLUGIN, "--markers")
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.soev_replay: *",
            "@pytest.mark.soev_live(reason): *",
            "@pytest.mark.soev_golden(name): *",
        ]
    )


def test_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    """`pytest --fixtures` has a sentence for each fixture."""
    result = pytester.runpytest_inprocess(*PLUGIN, "--fixtures", "-q")
    result.stdout.fnmatch_lines(["soev_agents *", "    *", "soev_golden *", "    *"])


def test_the_header_is_silent_without_replay(shop: Shop) -> None:
    """A run that does not replay has no line of ours, unless it is verbose."""
    shop.run().stdout.no_fnmatch_line("soev:*")
    shop.run("-v").stdout.fnmatch_lines(["soev: golden traces are replayed by --soev-replay"])


def test_the_header_counts_what_pytest_is_pointed_at(shop: Shop) -> None:
    """The header names the places of this run, and how many traces they hold."""
    shop.add("gift")
    result = shop.replay("tests/golden/gift.soev.jsonl")
    result.stdout.fnmatch_lines(["soev: replay of 1 trace in tests/golden/gift.soev.jsonl, *"])
    shop.replay("tests").stdout.fnmatch_lines(["soev: replay of 2 traces in tests, catalog *"])


def test_the_option_for_the_catalog_wins_over_the_ini_file(shop: Shop) -> None:
    """`--soev-catalog` is taken when both name a place."""
    (shop.path / "other.py").write_text("from shop import agents as made\n", "utf-8")
    shop.replay("--soev-catalog=other:made").assert_outcomes(passed=1)
    result = shop.replay("--soev-catalog=other:lost")
    result.stdout.fnmatch_lines(["*`other` has no attribute `lost`*"])


def test_without_the_plugin_a_left_over_key_is_a_warning(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-p no:soev` turns everything off; pytest then warns of keys that it does not know."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    result = shop.pytester.runpytest_inprocess("-p", "no:soev", "-W", "default")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["*PytestConfigWarning: Unknown config option: soev_catalog*"])
    assert "soev replay" not in result.stdout.str()


def test_the_plugin_is_loaded_by_its_entry_point(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed soev needs no `-p`: its options are there."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    result = shop.pytester.runpytest_inprocess("--soev-replay")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["plugins: *soev-*"])
