"""Numbers and handles of a view."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soev.domain import (
    Element,
    Event,
    Input,
    Source,
    ToolOutput,
    Trace,
    TraceBuilder,
    elements_in,
)
from soev.runtime._growing import Growing
from soev.runtime._numbering import Numbering, numbering


class Page(Source):
    """A page that can be cited."""

    tag: ClassVar[str] = "page"


class Row(Element):
    """A row that cannot."""

    tag: ClassVar[str] = "row"


class Shelf(Element):
    """An element that holds others."""

    tag: ClassVar[str] = "shelf"

    pages: tuple[Page, ...] = ()


IDS = st.sampled_from(["a", "b", "c", "d", "e"])
REFS = st.none() | IDS
PAGES = st.builds(Page, id=IDS, ref=REFS)
ELEMENTS = st.one_of(
    PAGES,
    st.builds(Row, id=IDS, ref=REFS),
    st.builds(Shelf, id=IDS, ref=REFS, pages=st.lists(PAGES, max_size=2).map(tuple)),
)
EVENTS = st.lists(
    st.one_of(
        st.builds(Input, elements=st.lists(ELEMENTS, max_size=2).map(tuple)),
        st.builds(
            ToolOutput,
            call_id=st.none() | IDS,
            elements=st.lists(ELEMENTS, max_size=3).map(tuple),
        ),
    ),
    max_size=8,
)


def naive(events: list[Event]) -> Numbering:
    """Number the elements and results of events, from the rule and without sharing."""
    numbers: dict[str, int] = {}
    elements: dict[int, Element] = {}
    calls: dict[str, str] = {}
    handles: dict[str, str] = {}
    for event in events:
        for element in elements_in(event):
            for each in (element.ref, element.id):
                if each is not None and each not in numbers:
                    numbers[each] = len(numbers) + 1
            elements.setdefault(numbers[element.id], element)
        if isinstance(event, ToolOutput) and event.call_id is not None:
            handle = f"r{len(calls) + 1}"
            calls[handle] = event.call_id
            handles.setdefault(event.call_id, handle)
    return Numbering(numbers, elements, calls, handles)


@given(EVENTS)
def test_numbering_grows_with_its_trace(events: list[Event]) -> None:
    """At every length the numbering equals the one made from scratch, and it never changes."""
    builder = TraceBuilder()
    kept: list[tuple[int, Numbering]] = [(0, numbering(builder.view("main")))]
    for event in events:
        builder.feed(event)
        kept.append((len(builder), numbering(builder.view("main"))))
    for length, each in kept:
        assert each == naive(events[:length])


@given(EVENTS, EVENTS, EVENTS, st.booleans())
def test_branches_go_on_from_their_parent(
    before: list[Event], first: list[Event], second: list[Event], late: bool
) -> None:
    """A branch starts with its parent's numbers, and the join numbers in view order."""
    opening: list[Event] = [Input(payload="go"), *before]
    one = [each.model_copy(update={"stream": f"main/a#{len(opening)}.1"}) for each in first]
    two = [each.model_copy(update={"stream": f"main/b#{len(opening)}.2"}) for each in second]
    one = [each for each in one if isinstance(each, ToolOutput)]
    two = [each for each in two if isinstance(each, ToolOutput)]
    builder = TraceBuilder()
    for event in opening:
        builder.feed(event)
    parent = numbering(builder.view("main"))
    for event in [*two, *one] if late else [*one, *two]:
        builder.feed(event)
        for stream in ("main", f"main/a#{len(opening)}.1", f"main/b#{len(opening)}.2"):
            numbering(builder.view(stream))
    assert numbering(builder.view(f"main/a#{len(opening)}.1")) == naive([*opening, *one])
    assert numbering(builder.view(f"main/b#{len(opening)}.2")) == naive([*opening, *two])
    assert numbering(builder.view("main")) == naive([*opening, *one, *two])
    assert parent == naive(opening)


def test_a_ref_is_numbered_before_what_names_it() -> None:
    """The whole of a part has the lower number, and no element until it is shown itself."""
    part = Page(id="part", ref="whole")
    found = numbering(Trace([ToolOutput(call_id="c", elements=(part,))]))
    assert (found.number("whole"), found.number("part")) == (1, 2)
    assert found.element(1) is None
    assert found.by_id("whole") is None
    assert found.by_id("part") == part


def test_only_sources_can_be_cited() -> None:
    """`source` gives the real id of a Source alone."""
    found = numbering(Trace([ToolOutput(elements=(Page(id="p"), Row(id="r")))]))
    assert [found.source(number) for number in (1, 2, 3)] == ["p", None, None]


def test_handles_stand_for_calls() -> None:
    """Results with a call id have handles in order, and nothing else has one."""
    results = [ToolOutput(call_id="x"), ToolOutput(), ToolOutput(call_id="y")]
    found = numbering(Trace(results))
    assert (found.call("r1"), found.call("r2"), found.call("r3")) == ("x", "y", None)
    assert (found.handle("x"), found.handle("y"), found.handle("z")) == ("r1", "r2", None)


def test_later_entries_do_not_show() -> None:
    """The mappings of an older numbering keep their length and order as the trace grows."""
    builder = TraceBuilder()
    builder.feed(Input(elements=(Page(id="a"),)))
    before = numbering(builder.view("main"))
    builder.feed(Input(elements=(Page(id="b"),)))
    after = numbering(builder.view("main"))
    assert dict(before.numbers) == {"a": 1}
    assert "b" not in before.numbers
    assert list(after.numbers) == ["a", "b"]
    with pytest.raises(TypeError, match="item assignment"):
        after.numbers["c"] = 3  # type: ignore[index]  # it is read-only, which is the point


def test_a_step_costs_the_new_events_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbering a view after one more event looks at that event and at no other."""
    builder = TraceBuilder()
    for place in range(50):
        builder.feed(Input(elements=(Page(id=f"p{place}"),)))
    numbering(builder.view("main"))
    seen: list[Event] = []

    def counted(event: Event) -> object:
        seen.append(event)
        return elements_in(event)

    monkeypatch.setattr("soev.runtime._numbering.elements_in", counted)
    builder.feed(Input(elements=(Page(id="last"),)))
    assert numbering(builder.view("main")).number("last") == 51
    assert len(seen) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20))
def test_growing_from_any_version_keeps_all_versions(steps: list[tuple[int, int]]) -> None:
    """Adding to an older version, or to a fork, changes no version that is there."""
    versions: list[tuple[Growing[int, str], dict[int, str]]] = [(Growing(), {})]
    for place, key in steps:
        grown, plain = versions[place % len(versions)]
        base = Growing(grown) if key % 3 == 0 else grown
        value = f"{len(versions)}"
        versions.append((base.add(key, value), {key: value, **plain}))
    for grown, plain in versions:
        assert dict(grown) == plain
        assert len(grown) == len(plain)
