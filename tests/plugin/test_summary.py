"""What the end of a run tells people, GitHub, and programs."""

import json
from pathlib import Path

import pytest

from .shop import Shop


def test_changes_are_clustered_over_traces(shop: Shop) -> None:
    """One edit is one line, with its calls, its traces and the first place; a command ends it."""
    shop.add("gift")
    shop.shorten_prompt()
    result = shop.replay("--tb=no")
    lines = result.outlines
    start = next(n for n, line in enumerate(lines) if line.strip("= ") == "soev replay")
    assert lines[start + 1] == "2 traces, 6 calls: 0 traces as accepted, 2 changed (6 calls)"
    assert lines[start + 2].split("   ")[:2] == [
        "  A  system message of assistant",
        "6 calls in 2 traces",
    ]
    assert lines[start + 2].endswith("first: tests/golden/gift.calls.md:12")
    result.stdout.fnmatch_lines(
        ["2 accepted files would change. Accept all: pytest --soev-replay --soev-update", "=*"],
        consecutive=True,
    )


def test_other_runs_have_no_section(shop: Shop) -> None:
    """Nothing is printed where nothing was replayed."""
    shop.pytester.makepyfile("def test_one(): pass")
    shop.run(".").stdout.no_fnmatch_line("*soev replay*")


def test_the_short_summary_says_what_is_wrong(shop: Shop) -> None:
    """Pytest's own list of failures has the first line of ours."""
    shop.calls().unlink()
    result = shop.replay("-rf")
    result.stdout.fnmatch_lines(["FAILED tests/golden/refund.soev.jsonl::replay - no accepted *"])


def test_a_report_directory_gets_both_reports(shop: Shop) -> None:
    """`--soev-report` writes Markdown for people and JSON for programs."""
    shop.shorten_prompt()
    shop.replay("--soev-report=out")
    text = (shop.path / "out" / "report.md").read_text("utf-8")
    assert "<summary>A: system message of assistant, 3 calls in 1 trace</summary>" in text
    assert "+ Answer in one sentence." in text
    data = json.loads((shop.path / "out" / "report.json").read_text("utf-8"))
    assert [trace["verdict"] for trace in data["traces"]] == ["changed"]
    assert data["changes"][0]["removed"] == ["Answer briefly."]


def test_a_report_that_cannot_be_written_fails_the_run(shop: Shop) -> None:
    """A file that stands where the directory should be is named."""
    (shop.path / "out").write_text("", "utf-8")
    result = shop.replay("--soev-report=out")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["The report is not written: *out*"])


def test_github_gets_one_annotation_for_each_change(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Annotations stand on the accepted file's line, and the job gets a summary."""
    summary = shop.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    shop.add("gift")
    shop.shorten_prompt()
    result = shop.replay()
    found = [line for line in result.outlines if line.startswith("::error ")]
    assert len(found) == 1
    assert found[0].startswith("::error file=tests/golden/gift.calls.md,line=12,title=soev::A ")
    assert "%0A- Answer briefly.%0A" in found[0].replace("%0A  - ", "%0A- ")
    assert summary.read_text("utf-8").startswith("# soev replay\n")
    silent = shop.replay("--soev-annotations=off")
    silent.stdout.no_fnmatch_line("::error *")


def test_github_gets_at_most_ten_annotations(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub drops what is beyond ten, so no more are printed."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for number in range(12):
        shop.add(f"trace-{number}", accepted=False)
    result = shop.replay()
    assert sum(line.startswith("::error ") for line in result.outlines) == 10


def test_annotations_name_files_of_the_repository(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sub-directory of a checkout paths begin at the checkout."""
    (shop.path.parent / ".git").mkdir(exist_ok=True)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    shop.calls().unlink()
    result = shop.replay()
    (shop.path.parent / ".git").rmdir()
    name = shop.path.name
    result.stdout.fnmatch_lines([f"::error file={name}/tests/golden/refund.calls.md,line=1,*"])


def test_junit_gets_properties_and_the_message(shop: Shop, tmp_path: Path) -> None:
    """The XML report names the trace, its agent and how many calls changed."""
    shop.shorten_prompt()
    file = tmp_path / "junit.xml"
    shop.replay(f"--junitxml={file}")
    text = file.read_text("utf-8")
    for name, value in (
        ("trace", "tests/golden/refund.soev.jsonl"),
        ("agent", "assistant"),
        ("calls", "3"),
        ("calls_changed", "3"),
        ("unreplayable", "0"),
    ):
        assert f'<property name="soev.{name}" value="{value}"' in text
    assert 'message="3 of 3 calls changed. First: call 1,' in text


def test_reports_carry_json(shop: Shop) -> None:
    """Other plugins read `report.soev`, which JSON can carry."""
    shop.shorten_prompt()
    (shop.path / "conftest.py").write_text(
        """
import json

def pytest_runtest_logreport(report):
    if report.when == "call":
        data = json.loads(json.dumps(report.soev))
        assert data == report.soev
        print("carried", data["trace"], data["report"]["verdict"])
""",
        "utf-8",
    )
    result = shop.replay("-s")
    result.stdout.fnmatch_lines(["*carried tests/golden/refund.soev.jsonl changed"])
