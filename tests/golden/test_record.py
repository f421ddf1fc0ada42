"""Scrubbing, and the proof by replay that it changed no request."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soev.domain import (
    KEY_SHAPES,
    Citation,
    Event,
    Input,
    ModelOutput,
    StoredEvent,
)
from soev.golden import (
    Recording,
    Scrubbing,
    SecretFoundError,
    UnprovenRecordingError,
    check,
    golden_text,
    record,
    refuse_secrets,
)
from soev.golden._secrets import Placeholders, find_secrets
from soev.runtime import Graph, UnknownAgentError

from .shop import PROMPT, Document, agents, called, found, log, pinned, react, said, turn

KEY = "sk-" + "abcdefghijklmnopqrstuvwx"
RANDOM = "q7Xk2Lw9Zr4Tn8Vb3Ys6Hd1Pf5Gm"


async def recorded(
    *appends: Sequence[Event], prompt: Any = PROMPT, scrubbing: Scrubbing | None = None, **more: Any
) -> Recording:
    """Record a log whose hashes are right for this agent."""
    events = await pinned(log(*appends), react(prompt, **more))
    return await record(
        events, agents(prompt, **more), "refund", directory="tests/golden", scrubbing=scrubbing
    )


def payloads(recording: Recording, type: str) -> list[dict[str, Any]]:
    """Return the payloads of a type of events."""
    return [json.loads(e.data) for e in recording.trace.events if e.type == type]


@pytest.mark.anyio
async def test_ids_and_times_are_scrubbed_and_no_request_changes() -> None:
    """Ids are numbered, times begin in 2000, and every hash of the log still holds."""
    cited = Citation(at=0, ids=("doc-8f3a",))
    shown = found("call_x1", elements=(Document(id="doc-8f3a", title="Refunds"),))
    end = [ModelOutput(text="Thirty days.", citations=(cited,), origin="model")]
    recording = await recorded([Input(payload="Hi")], [called("call_x1")], [shown], end)
    text = golden_text(recording.trace)
    assert not [word for word in ("doc-8f3a", "call_x1", "2024-") if word in text]
    assert payloads(recording, "tool_output")[0]["call_id"] == "call-1"
    assert payloads(recording, "tool_output")[0]["elements"][0]["id"] == "element-1"
    assert payloads(recording, "model_output")[1]["citations"][0]["ids"] == ["element-1"]
    assert recording.trace.header.scrubbed == ("ids", "times", "secrets")
    assert recording.trace.header.kept == ()
    report = await check(recording.trace, recording.calls, agents())
    assert [call.same_as_recorded for call in report.calls] == [True, True]


@pytest.mark.anyio
async def test_times_keep_their_gaps_in_whole_seconds() -> None:
    """The first event is at the start of 2000, later ones where they were, to the second."""
    recording = await recorded(*turn())
    stamps = [
        line.split('"ts":"')[1][:20] for line in golden_text(recording.trace).split("\n")[1:-1]
    ]
    seconds = [f"2000-01-01T00:00:0{n}Z" for n in (0, 0, 1, 3, 4, 4)]
    assert stamps == seconds


@pytest.mark.anyio
async def test_recording_a_thread_twice_gives_the_same_bytes() -> None:
    """Other ids and other times are the same golden trace."""
    first = await recorded(*turn(call="call_a"), *turn("More?", "call_b"))
    again = await recorded(*turn(call="zzz"), *turn("More?", "yyy"))
    assert golden_text(first.trace) == golden_text(again.trace)
    assert first.calls == again.calls


class Clocked:
    """An agent whose prompt depends on what a proof must find."""

    def __init__(self, tell: Any) -> None:
        self.agent, self.tell = react(), tell
        self.input = self.agent.input
        self.element_types, self.event_types = self.agent.element_types, self.agent.event_types

    def build(self, resources: Any, turn: Any, model: str | None) -> Any:
        graph = self.agent.build(resources, turn, model)
        step: Any = graph.node("model").step
        builder = step.builder

        def telling(view: Any) -> Any:
            context = builder(view)
            request = replace(context.request, options={"note": self.tell(view)})
            return replace(context, request=request)

        told = Graph()
        told.add_node("model", replace(step, builder=telling))
        told.set_entry_point("model")
        return told


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tell", "kept", "scrubbed"),
    [
        (lambda view: str(view.opening.ts), ("times",), ("ids", "secrets")),
        (
            lambda view: [c.id for e in view.of(ModelOutput) for c in e.calls],
            ("call ids",),
            ("ids", "times", "secrets"),
        ),
        (
            lambda view: [e.id for e in view.elements()],
            ("element ids",),
            ("ids", "times", "secrets"),
        ),
    ],
)
async def test_what_a_request_depends_on_is_kept(
    tell: Any, kept: tuple[str, ...], scrubbed: tuple[str, ...]
) -> None:
    """A builder that shows a time or an id keeps that class of fields as it was, and only that."""
    document = Document(id="doc-8f3a", title="Refunds")
    agent = Clocked(tell)
    events = log(
        [Input(payload="Hi", elements=(document,))],
        [called("call_x1")],
        [found("call_x1")],
        [ModelOutput(text="Done.", origin="model")],
    )
    recording = await record(await pinned(events, agent), {"assistant": agent}, "refund")
    header = recording.trace.header
    assert (header.kept, header.scrubbed) == (kept, scrubbed)
    report = await check(recording.trace, recording.calls, {"assistant": agent})
    assert all(call.same_as_recorded for call in report.calls)


@pytest.mark.anyio
async def test_a_text_that_equals_an_id_by_accident_is_left_alone() -> None:
    """An argument that the model is shown as it is keeps no id from being numbered."""
    recording = await recorded(*turn(call="refund"))
    (output, _) = payloads(recording, "model_output")
    assert (output["calls"][0]["id"], output["calls"][0]["arguments"]["query"]) == (
        "call-1",
        "refund",
    )
    assert recording.trace.header.kept == ()


@pytest.mark.anyio
async def test_a_secret_in_a_text_is_replaced_and_the_hash_taken_anew() -> None:
    """The secret is nowhere in the files, and the replay of the file still matches its hashes."""
    recording = await recorded([Input(payload=f"My key is {KEY}.")], said("Do not send keys."))
    assert KEY not in golden_text(recording.trace) + recording.calls
    assert payloads(recording, "input")[0]["payload"] == "My key is <secret-1>."
    assert recording.repinned == (3,)
    report = await check(recording.trace, recording.calls, agents())
    assert [call.same_as_recorded for call in report.calls] == [True]


@pytest.mark.anyio
async def test_a_hash_that_did_not_match_before_is_not_taken_anew() -> None:
    """A log that had drifted stays drifted: scrubbing must not hide that."""
    events = await pinned(log([Input(payload=f"My key is {KEY}.")], said("No.")), react("Other."))
    recording = await record(events, agents(), "refund")
    assert recording.repinned == ()
    report = await check(recording.trace, recording.calls, agents())
    assert (report.verdict, report.drifted) == ("drifted", True)


@pytest.mark.anyio
async def test_a_citation_stays_at_its_place_when_a_secret_before_it_is_replaced() -> None:
    """Offsets move with the text that they point into."""
    text = f"Use {KEY}. It is free."
    cited = Citation(at=len(text), ids=("d",))
    end = [ModelOutput(text=text, citations=(cited,), origin="model")]
    recording = await recorded([Input(payload="Hi")], end)
    (output,) = payloads(recording, "model_output")
    assert output["text"] == "Use <secret-1>. It is free."
    assert output["citations"][0]["at"] == len(output["text"])


@pytest.mark.anyio
async def test_a_project_adds_patterns_and_a_function() -> None:
    """A project's own shapes are replaced, and its function sees each event first."""

    def redact(event: StoredEvent) -> StoredEvent:
        return replace(event, data=event.data.replace("Ada", "Customer"))

    scrubbing = Scrubbing(patterns=(re.compile(r"ord-\d+"),), redact=redact)
    recording = await recorded(
        [Input(payload="Ada asks about ord-77.")],
        said("ord-77 is on its way."),
        scrubbing=scrubbing,
    )
    text = golden_text(recording.trace)
    assert "Customer asks about <secret-1>." in text
    assert "<secret-1> is on its way." in text
    assert recording.repinned == (3,)


@pytest.mark.anyio
async def test_a_secret_that_cannot_be_removed_stops_the_recording() -> None:
    """A key inside a provider's reasoning is named by file and line, and never shown."""
    end = [ModelOutput(text="Hi.", reasoning={"note": KEY}, origin="model")]
    with pytest.raises(SecretFoundError) as caught:
        await recorded([Input(payload="Hi")], end)
    assert (caught.value.file, caught.value.line) == ("tests/golden/refund.soev.jsonl", 4)
    assert str(caught.value).startswith(
        "tests/golden/refund.soev.jsonl:4: a value looks like a key"
    )
    assert KEY not in str(caught.value)
    allowed = Scrubbing(allowed=frozenset({KEY}))
    recording = await recorded([Input(payload="Hi")], end, scrubbing=allowed)
    assert KEY in golden_text(recording.trace)


@pytest.mark.anyio
async def test_an_impure_builder_cannot_be_recorded() -> None:
    """What two replays build differently proves nothing, and is said so."""
    numbers = count()
    agent = Clocked(lambda view: next(numbers))
    with pytest.raises(UnprovenRecordingError, match=r"'refund' is not recorded.*builds of a call"):
        await record(log(*turn()), {"assistant": agent}, "refund")


@pytest.mark.anyio
async def test_a_log_that_cannot_be_replayed_cannot_be_recorded() -> None:
    """A call whose node is gone, and an agent that is gone, are refused by name."""
    events = log([Input(payload="Hi")], [called("c", node="writer")])
    with pytest.raises(UnprovenRecordingError, match=r"call 1 .*'writer'"):
        await record(events, agents(), "refund")
    with pytest.raises(UnknownAgentError, match="'assistant'"):
        await record(events, {"helper": react()}, "refund")


SECRETS = [
    KEY,
    RANDOM,
    "Authorization: Bearer abcDEF123456ghiJKL789",
    "password=hunter22",
    '{"api_key": "k3y-value"}',
    "https://user:pass1word@example.test/",
    "AKIAABCDEFGHIJKLMNOP",
]
HARMLESS = [
    "The password must have 8 characters.",
    "token: it is a word",
    "6f1ed002ab5595859014ebf0951522d96f1ed002ab5595859014ebf0951522d9",
    "tests/golden/test_a_very_long_file_name_of_a_test.py",
    "9b2e7c1a-4f0d-4a6b-8c3e-2d1f0a9b8c7d",
    "<secret-1> and api_key: <secret-2>",
    "max_tokens=4096",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_found(text: str) -> None:
    """Key shapes, random tokens and values of telling names are found, and replaced for good."""
    replaced = Placeholders().replace(text, find_secrets(text))
    assert "<secret-1>" in replaced
    assert find_secrets(replaced) == []
    with pytest.raises(SecretFoundError, match="x:2: a value looks like"):
        refuse_secrets("x", f"fine\n{text}")


@pytest.mark.parametrize("text", HARMLESS)
def test_words_digests_and_ids_are_no_secrets(text: str) -> None:
    """What only resembles a secret is left as it is."""
    assert find_secrets(text) == []
    refuse_secrets("x", text)


@given(st.lists(st.sampled_from([*SECRETS, *HARMLESS, " ", ",", "\n"]), max_size=5))
def test_replaced_texts_hold_no_secret(pieces: list[str]) -> None:
    """Whatever stands beside a secret, nothing that looks like one remains."""
    text = " ".join(pieces)
    replaced = Placeholders().replace(text, find_secrets(text))
    assert find_secrets(replaced) == []
    assert not any(shape.search(replaced) for shape in KEY_SHAPES)


def test_the_same_secret_has_the_same_placeholder() -> None:
    """A secret that occurs twice can still be seen to be one."""
    placeholders = Placeholders()
    texts = [f"{KEY} and {RANDOM}", f"{RANDOM}"]
    replaced = [placeholders.replace(text, find_secrets(text)) for text in texts]
    assert replaced == ["<secret-1> and <secret-2>", "<secret-2>"]
