"""What each kind of failure prints, with file, line and what to do."""

import pytest

from .shop import Shop

CALLS = "tests/golden/refund.calls.md"
TRACE = "tests/golden/refund.soev.jsonl"
PROMPT_SETTING = "prompt=PROMPT"


def tamper(shop: Shop, old: str, new: str) -> None:
    """Change the events file by hand."""
    text = shop.trace().read_text("utf-8")
    assert old in text
    shop.trace().write_text(text.replace(old, new), "utf-8", newline="\n")


def test_a_changed_prompt_and_tool(shop: Shop) -> None:
    """The failure shows each change once, the calls that have it, the line and the size."""
    shop.shorten_prompt()
    shop.edit("Use short keyword queries.", "Use at most three keywords.")
    result = shop.replay()
    result.stdout.fnmatch_lines(
        [
            "_* refund replay _*",
            f"3 of 3 calls changed. First: call 1, turn 1, node model ({CALLS}:*)",
            "  ?  system message",
            "       You are a support assistant.",
            "     - Answer briefly.",
            "     + Answer in one sentence.",
            "       Cite each source.",
            "  calls 1-3: A B*",
            "  size: * -> * characters (+*%)",
        ]
    )
    result.stdout.fnmatch_lines(["  ?  tool search: description"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_trace_without_accepted_requests(shop: Shop) -> None:
    """The message names the command and the file to commit."""
    shop.calls().unlink()
    result = shop.replay()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            'no accepted requests yet: run "pytest --soev-replay --soev-update=new" and commit '
            "refund.calls.md",
            "1 trace, 3 calls: * 1 without accepted requests",
        ]
    )


def test_a_revert_is_told_from_other_changes(shop: Shop) -> None:
    """Code that again sends what was really sent is said to do so."""
    shop.shorten_prompt()
    shop.replay("--soev-update").assert_outcomes(passed=1)
    shop.edit("Answer in one sentence.", "Answer briefly.")
    result = shop.replay()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["Today's code again sends what was really sent: *"])


def test_an_event_of_an_unknown_type(shop: Shop) -> None:
    """The event, its type and the place to add the class are named."""
    tamper(shop, '"type":"tool_output"', '"type":"refund_quote"')
    shop.replay().stdout.fnmatch_lines(
        ["event *: type 'refund_quote' is not among the types of agent 'assistant'; add the *"]
    )


def test_an_event_that_does_not_fit_its_class(shop: Shop) -> None:
    """The event and the field are named."""
    tamper(shop, '"text":"30 days for refund policy."', '"text":30')
    shop.replay().stdout.fnmatch_lines(["event * (tool_output): field 'text': *"])


def test_a_turn_that_cannot_be_built(shop: Shop) -> None:
    """An input that no longer fits is named with its turn, and what follows from it."""
    shop.edit("PROMPT = ", "from pydantic import BaseModel\n\nPROMPT = ")
    shop.edit("def agents", "class Ticket(BaseModel):\n    priority: int\n\n\ndef agents")
    shop.edit(PROMPT_SETTING, "input=Ticket, prompt=PROMPT")
    shop.replay().stdout.fnmatch_lines(
        ["turn 1: *Ticket*Threads with this input cannot resume", "turn 2: *Ticket*"]
    )


def test_a_call_of_a_node_that_is_gone(shop: Shop) -> None:
    """A call that cannot be rebuilt is named with the events around it."""
    tamper(shop, '"origin":"model"', '"origin":"writer"')
    result = shop.replay()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["call 1 (turn 1, node writer): the graph has no node 'writer' any more*", "  event 1: *"]
    )


def test_a_call_that_cannot_be_rebuilt_can_be_a_warning(shop: Shop) -> None:
    """With `soev_unreplayable = warn` the trace is compared, and the summary has the warning."""
    tamper(shop, '"origin":"model"', '"origin":"writer"')
    shop.ini('soev_unreplayable = "warn"')
    result = shop.replay("--soev-update")
    result.stdout.fnmatch_lines([f"  {CALLS}: warning: call 1 (turn 1, node writer): *"])


def test_a_builder_that_raises(shop: Shop) -> None:
    """The project's own traceback is shown, without a frame of ours before it."""
    shop.edit(
        "def agents",
        "class Broken(ScriptedChatModel):\n    def prepare(self, request):\n"
        "        return {}['region']\n\n\ndef agents",
    )
    shop.edit('ScriptedChatModel(name="gpt-x")', 'Broken(name="gpt-x")')
    result = shop.replay()
    result.stdout.fnmatch_lines(
        [
            "call 1 (turn 1, node model): the context builder raised",
            "*shop.py*",
            "KeyError: 'region'",
        ]
    )
    result.stdout.no_fnmatch_line("*/soev/runtime/*")


def test_a_builder_that_is_not_pure(shop: Shop) -> None:
    """Two builds of one call that differ are named, with the difference."""
    shop.edit("PROMPT = ", "from itertools import count\n\nNUMBERS = count()\nPROMPT = ")
    shop.edit(PROMPT_SETTING, 'prompt=lambda turn: f"Build {next(NUMBERS)}."')
    result = shop.replay()
    result.stdout.fnmatch_lines(["two builds of call 1 from the same trace differ: *"])


def test_an_agent_that_is_gone(shop: Shop) -> None:
    """The trace of an agent that the catalog no longer has is obsolete."""
    shop.edit('{"assistant":', '{"helper":')
    result = shop.replay()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["agent 'assistant' is not in the catalog (helper)"])


@pytest.mark.parametrize(("policy", "code"), [("fail", 1), ("warn", 0)])
def test_a_calls_file_without_a_trace(shop: Shop, policy: str, code: int) -> None:
    """An orphan fails the run though every trace passed, or is only told."""
    shop.calls("gift").write_text(shop.calls().read_text("utf-8"), "utf-8")
    shop.ini(f'soev_obsolete = "{policy}"')
    result = shop.replay("-k", "refund")
    result.assert_outcomes(passed=1)
    assert result.ret == code
    result.stdout.fnmatch_lines(
        ["*gift.calls.md has no trace", "nothing needs these files any more: git rm *gift.calls.md"]
    )


def test_a_trace_of_a_test_that_is_gone(shop: Shop) -> None:
    """A trace whose recording test no longer exists is obsolete."""
    tamper(shop, '"source":""', '"source":"test:tests/test_refund.py::test_denied"')
    result = shop.replay()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*refund was recorded by tests/test_refund.py::test_denied, *"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"position":3', "<<<<<<< ours\n", f"{TRACE}:4: git conflict markers at line 4*"),
        ('"events":9', '"events":8', f"{TRACE}:10: header says 8 events, the file has 9*"),
        ('"golden/1"', '"golden/7"', f"{TRACE}:1: the file has the format 'golden/7'*"),
        ('"position":2,', '"position":3,', f"{TRACE}:3: the event has position 3, not 2*"),
    ],
)
def test_a_damaged_events_file(shop: Shop, old: str, new: str, message: str) -> None:
    """A file that cannot be read is named with its line, in the short summary too."""
    tamper(shop, old, new)
    result = shop.replay("--tb=line")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{message}"])


def test_a_damaged_calls_file(shop: Shop) -> None:
    """Conflict markers in the accepted file are named, and an update does not write over them."""
    text = shop.calls().read_text("utf-8").replace("## call 2", "<<<<<<< ours\n## call 2")
    shop.calls().write_text(text, "utf-8")
    result = shop.replay("--soev-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{CALLS}:*: git conflict markers at line *"])
    assert shop.calls().read_text("utf-8") == text


def test_a_growing_request_is_named(shop: Shop) -> None:
    """A request that grew more than the ini file allows says so beside its change."""
    shop.edit("Answer briefly.", "Answer briefly, " + "and be very precise about it, " * 9)
    shop.replay().stdout.fnmatch_lines(["call * grew by * characters (+*%) *allows 10%"])
    shop.ini('soev_max_growth = ""')
    shop.replay().stdout.no_fnmatch_line("call * grew by *")


def test_a_changed_route(shop: Shop) -> None:
    """With `soev_routes` a decision that today's graph would not take is shown."""
    shop.ini("soev_routes = true")
    tamper(shop, '"origin":"tools"', '"origin":"search"')
    result = shop.replay("-k", "routes")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["after event * (node model) today's router goes to 'tools'; *"])


@pytest.mark.parametrize("verbosity", ["-v", "-vv"])
def test_more_is_shown_when_asked(shop: Shop, verbosity: str) -> None:
    """`-vv` adds whole requests before and after, and `--soev-details` the calls of a change."""
    shop.shorten_prompt()
    result = shop.replay(verbosity, "--soev-details")
    result.stdout.fnmatch_lines(["     calls 1-3"])
    shown = "call 1, accepted:" in result.stdout.str()
    assert shown == (verbosity == "-vv")


def test_a_terminal_with_colours_sets_words_off(shop: Shop) -> None:
    """Removed and added words are coloured where there is a terminal, and nowhere else."""
    shop.shorten_prompt()
    assert "\x1b[" not in shop.replay().stdout.str()
    coloured = shop.replay("--color=yes").stdout.str()
    assert "\x1b[31m" in coloured
    assert "\x1b[32m" in coloured
