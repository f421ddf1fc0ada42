"""Accepting: what is written, when, and by whom."""

import errno
from pathlib import Path
from typing import NoReturn

import pytest

from soev.golden import parse_calls

from .shop import SHORT, Shop


def files(shop: Shop) -> dict[str, bytes]:
    """Return all golden files with their bytes."""
    return {path.name: path.read_bytes() for path in sorted(shop.golden.iterdir())}


def test_an_update_accepts_and_the_next_run_is_green(shop: Shop) -> None:
    """`--soev-update` rewrites the calls file of a change, and never the events."""
    shop.shorten_prompt()
    events = shop.trace().read_bytes()
    result = shop.replay("--soev-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "soev: *, ACCEPTING ALL",
            "1 accepted file was written. Review with git diff:",
            "  tests/golden/refund.calls.md",
        ]
    )
    assert SHORT in shop.calls().read_text("utf-8")
    assert shop.trace().read_bytes() == events
    result = shop.replay()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["drifted from what was really sent: 1 of 1 trace"])


def test_an_update_without_a_change_writes_nothing(shop: Shop) -> None:
    """Files that are as accepted keep their bytes."""
    before = files(shop)
    result = shop.replay("--soev-update")
    assert files(shop) == before
    result.stdout.no_fnmatch_line("*written*")


def test_an_update_of_new_files_alone_leaves_changes_open(shop: Shop) -> None:
    """`--soev-update=new` writes missing files, and a changed trace still fails."""
    shop.add("gift", accepted=False)
    shop.shorten_prompt()
    before = shop.calls().read_bytes()
    result = shop.replay("--soev-update=new")
    result.assert_outcomes(passed=1, failed=1)
    assert shop.calls().read_bytes() == before
    assert SHORT in shop.calls("gift").read_text("utf-8")


def test_a_plain_replay_writes_nothing(shop: Shop) -> None:
    """Without `--soev-update` the tree stays as it is, whatever changed."""
    shop.add("gift", accepted=False)
    shop.shorten_prompt()
    before = files(shop)
    shop.replay().assert_outcomes(failed=2)
    assert files(shop) == before


@pytest.mark.parametrize("value", ["true", "1"])
def test_ci_accepts_only_what_its_command_line_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """In CI an update out of `addopts` is left out, and one on the command line is told loudly."""
    monkeypatch.setenv("CI", value)
    shop.ini('addopts = "--soev-update"')
    shop.shorten_prompt()
    before = files(shop)
    result = shop.replay()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["soev: *, CI, nothing is written", "In CI nothing is accepted *"])
    assert files(shop) == before
    result = shop.replay("--soev-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["soev: *, ACCEPTING ALL IN CI", "In CI, by --soev-update: 1 accepted file was written.*"]
    )


@pytest.mark.parametrize(("value", "option"), [("false", "auto"), ("0", "auto"), ("true", "off")])
def test_what_is_no_ci(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, value: str, option: str
) -> None:
    """`CI=false`, `CI=0` and `--soev-ci=off` leave `addopts` in force."""
    monkeypatch.setenv("CI", value)
    shop.ini('addopts = "--soev-update"')
    shop.shorten_prompt()
    shop.replay(f"--soev-ci={option}").assert_outcomes(passed=1)


def test_a_tree_that_cannot_be_written_fails_the_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not written is named with the reason, and the exit code is 1."""

    def refuse(*, dir: Path, prefix: str) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system", str(dir / prefix))

    monkeypatch.setattr("soev.golden._files.tempfile.mkstemp", refuse)
    shop.shorten_prompt()
    before = files(shop)
    result = shop.replay("--soev-update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["tests/golden/refund.calls.md is not written: *Read-only*"])
    assert files(shop) == before


def test_workers_accept_through_their_controller(shop: Shop) -> None:
    """With two workers each change is written once, found once, and clustered over all traces."""
    shop.ini("soev_routes = true")
    for name in ("gift", "order"):
        shop.add(name)
    shop.shorten_prompt()
    result = shop.replay_in_workers("--soev-update")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        ["3 accepted files were written. *", "3 traces, 9 calls: 3 traces as accepted"]
    )
    for name in ("refund", "gift", "order"):
        text = shop.calls(name).read_text("utf-8")
        assert SHORT in text
        assert parse_calls(text).name == name


def test_a_checkout_with_crlf_passes(shop: Shop) -> None:
    """Files whose line ends git has changed are read, and an update restores LF."""
    for path in (shop.trace(), shop.calls()):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    shop.replay().assert_outcomes(passed=1)
    shop.replay("--soev-update").assert_outcomes(passed=1)
    assert b"\r" not in shop.calls().read_bytes()
    assert b"\r\n" in shop.trace().read_bytes()


def test_routes_are_accepted_beside_requests(shop: Shop) -> None:
    """One update accepts what is sent and where it goes, in one file."""
    shop.ini("soev_routes = true")
    text = shop.trace().read_text("utf-8").replace('"origin":"tools"', '"origin":"search"')
    shop.trace().write_text(text, "utf-8", newline="\n")
    shop.shorten_prompt()
    shop.replay("--soev-update").assert_outcomes(passed=2)
    accepted = shop.calls().read_text("utf-8")
    assert SHORT in accepted
    assert "route: " in accepted
    shop.replay().assert_outcomes(passed=2)
