"""Messages, their canonical JSON, and the list of them that grows and forks."""

import base64
import hashlib
import json
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from soev.domain import (
    AssistantMessage,
    ImagePart,
    JsonValue,
    Message,
    Messages,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UnencodableError,
    UserMessage,
    canonical_json,
    message_json,
    role_of,
    text_of,
)

TEXTS = st.text(max_size=8)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
PARTS = st.builds(TextPart, TEXTS) | st.builds(
    ImagePart, st.just("image/png"), data=st.binary(max_size=4)
)
CONTENTS = TEXTS | st.lists(PARTS, max_size=2).map(tuple)
CALLS = st.builds(
    ToolCall,
    id=TEXTS,
    name=TEXTS,
    arguments=st.dictionaries(TEXTS, JSON, max_size=2),
    raw=st.none() | TEXTS,
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(SystemMessage, CONTENTS),
    st.builds(UserMessage, CONTENTS),
    st.builds(AssistantMessage, CONTENTS, st.lists(CALLS, max_size=2).map(tuple), JSON),
    st.builds(ToolMessage, TEXTS, CONTENTS),
)


def opening_of(messages: list[Message]) -> str:
    """Return the beginning of a request's JSON, up to the last message."""
    return '{"messages":[' + ",".join(map(message_json, messages))


class GrowingMessages(RuleBasedStateMachine):
    """Adds to any list, forks any, and asks for hashes in any order; plain lists tell the truth."""

    lists = Bundle("lists")

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Messages, list[Message]]] = []

    @rule(target=lists, messages=st.lists(MESSAGES, max_size=3))
    def start(self, messages: list[Message]) -> tuple[Messages, list[Message]]:
        """Make a list from messages."""
        return self._keep(Messages(messages), messages)

    @rule(target=lists, old=lists, messages=st.lists(MESSAGES, max_size=3))
    def add(
        self, old: tuple[Messages, list[Message]], messages: list[Message]
    ) -> tuple[Messages, list[Message]]:
        """Add to a list, the newest of its line or an older one."""
        return self._keep(old[0].add(*messages), [*old[1], *messages])

    @rule(target=lists, old=lists)
    def fork(self, old: tuple[Messages, list[Message]]) -> tuple[Messages, list[Message]]:
        """Fork a list."""
        return self._keep(old[0].fork(), old[1])

    @rule(pair=lists)
    def hashes_as_a_whole(self, pair: tuple[Messages, list[Message]]) -> None:
        """The running hash and the length are those of the whole JSON, whenever they are asked."""
        text = opening_of(pair[1])
        assert pair[0].sha().hexdigest() == hashlib.sha256(text.encode()).hexdigest()
        assert pair[0].chars == len(text) - len('{"messages":[')

    @rule(target=lists, pair=lists)
    def pickle(self, pair: tuple[Messages, list[Message]]) -> tuple[Messages, list[Message]]:
        """A pickled list is the same list again."""
        return self._keep(pickle.loads(pickle.dumps(pair[0])), pair[1])

    @invariant()
    def holds_its_messages(self) -> None:
        """No list changes when others grow."""
        for messages, truth in self.made:
            assert list(messages) == truth
            assert len(messages) == len(truth)

    def _keep(self, messages: Messages, truth: list[Message]) -> tuple[Messages, list[Message]]:
        self.made.append((messages, truth))
        assert [messages[place] for place in range(len(truth))] == truth
        return messages, truth


TestGrowingMessages = GrowingMessages.TestCase


@given(messages=st.lists(MESSAGES, max_size=5), cut=st.integers(0, 5))
def test_equality_is_by_messages(messages: list[Message], cut: int) -> None:
    """Lists are equal, and hash alike, when their messages are, however they came about."""
    whole = Messages(messages)
    grown = Messages(messages[:cut]).fork().add(*messages[cut:])
    assert whole == grown
    assert hash(whole) == hash(grown)
    assert whole != grown.add(UserMessage("more"))
    assert whole != messages


def test_indexes_work_as_in_a_tuple() -> None:
    """Negative indexes and slices work across a fork, and a wrong index is an IndexError."""
    first, second, third = (UserMessage(str(n)) for n in range(3))
    old = Messages([first])
    old.add(SystemMessage("elsewhere"))
    messages = old.add(second).fork().add(third)
    assert (messages[-1], messages[0], messages[1:]) == (third, first, (second, third))
    with pytest.raises(IndexError, match="no message 3 among 3"):
        messages[3]
    with pytest.raises(IndexError, match="no message -4 among 3"):
        messages[-4]


def test_adding_nothing_changes_nothing() -> None:
    """An addition of no messages is the list itself."""
    messages = Messages([UserMessage("a")])
    assert messages.add() is messages


def test_a_long_conversation_hashes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding and hashing looks at new messages, not at those before."""
    messages = Messages([UserMessage(str(n)) for n in range(100)])
    messages.sha()
    written: list[bytes] = []

    class Counting:
        def __init__(self, sha: "hashlib._Hash") -> None:
            self.sha = sha

        def update(self, piece: bytes) -> None:
            written.append(piece)
            self.sha.update(piece)

        def copy(self) -> "hashlib._Hash":
            return self.sha.copy()

    monkeypatch.setattr(messages._grown, "sha", Counting(messages._grown.sha))
    messages.add(UserMessage("new")).sha()
    assert b"".join(written) == b',{"content":"new","role":"user"}'


@given(message=MESSAGES)
def test_the_json_of_a_message_is_canonical(message: Message) -> None:
    """A message's piece is canonical JSON: reading it and writing it again gives the same text."""
    text = message_json(message)
    assert canonical_json(json.loads(text)) == text
    assert json.loads(text)["role"] == role_of(message)


def test_the_json_of_each_message_is_pinned() -> None:
    """The pieces that hashes are made of are these, for ever."""
    call = ToolCall(id="r1", name="search", arguments={"q": "ä"}, unresolved=("/q",))
    image = ImagePart("image/png", data=b"x")
    assert message_json(SystemMessage("S")) == '{"content":"S","role":"system"}'
    assert message_json(AssistantMessage("A", (call,), {"b": 1})) == (
        '{"calls":[{"arguments":{"q":"ä"},"id":"r1","name":"search","raw":null}],'
        '"content":"A","reasoning":{"b":1},"role":"assistant"}'
    )
    assert message_json(ToolMessage("r1", (TextPart("T"), image))) == (
        '{"call":"r1","content":[{"text":"T","type":"text"},'
        f'{{"data":"{base64.b64encode(b"x").decode()}","media_type":"image/png",'
        '"type":"image","url":null}],"role":"tool"}'
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserMessage("\ud83d"),
        lambda: AssistantMessage(reasoning=[float("nan")]),
        lambda: ToolMessage("r1", (TextPart("\udc00"),)),
    ],
    ids=["text", "reasoning", "part"],
)
def test_what_json_cannot_hold_is_refused_when_it_is_added(make: Callable[[], Message]) -> None:
    """A message that no request can hold never enters a list."""
    with pytest.raises(UnencodableError):
        Messages([make()])


def test_the_text_of_a_message_leaves_images_out() -> None:
    """The text joins the text parts."""
    content = (TextPart("a"), ImagePart("image/png", url="https://example.com/x"), TextPart("b"))
    kinds: list[Message] = [
        SystemMessage(content),
        UserMessage(content),
        AssistantMessage(content),
        ToolMessage("r1", content),
    ]
    assert [message.text for message in kinds] == ["ab"] * 4
    assert text_of("plain") == "plain"


@pytest.mark.parametrize("place", [{}, {"url": "https://example.com", "data": b"x"}])
def test_an_image_is_in_one_place(place: dict[str, object]) -> None:
    """An image has a URL or its bytes, not both and not neither."""
    with pytest.raises(ValueError, match="either `url` or `data`"):
        ImagePart("image/png", **place)  # type: ignore[arg-type] # by name


@given(messages=st.lists(MESSAGES, max_size=3))
def test_the_repr_shows_the_messages(messages: list[Message]) -> None:
    """A list prints as its messages."""
    assert repr(Messages(messages)) == f"Messages({messages!r})"
