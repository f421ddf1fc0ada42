"""Citation marks, read whole and as the text is written."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from soev.domain import Citation, Element, Source
from soev.runtime._citations import CitationReader, read_citations
from soev.runtime._context import CitationStrategy
from soev.runtime._numbering import Numbering
from soev.toolkit._citing import BRACKETS, FOOTNOTES, PARENS, XML


class Page(Source):
    """A page that can be cited."""

    tag: ClassVar[str] = "page"


class Row(Element):
    """A row that cannot."""

    tag: ClassVar[str] = "row"


NUMBERING = Numbering(
    {"a": 1, "b": 2, "row": 3}, {1: Page(id="a"), 2: Page(id="b"), 3: Row(id="row")}
)
SOURCES = {1: "a", 2: "b"}
STRATEGIES = {"brackets": BRACKETS, "parens": PARENS, "footnotes": FOOTNOTES, "xml": XML}
PIECES = st.sampled_from(
    [
        *("[", "]", "(", ")", "<", "<cite", "<cite>", "</cite>", "[^", "^", ",", ", ", " ", "  "),
        *("1", "2", "3", "9", "12", "a", ". ", "\n", "é", "[1]", "(2)", "<cite>1</cite>", "[^2]"),
        *("[1, 2]", "(1,3)", "[9]", "[[1]1]", "1" * 30),
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def naive(text: str, strategy: CitationStrategy) -> tuple[str, list[Citation]]:
    """Take the marks out of a whole text with one search."""
    clean, done, found = "", 0, []
    for mark in strategy.pattern.finditer(text):
        before = text[done : mark.start()]
        clean += before.rstrip(" ")
        spaces = before[len(before.rstrip(" ")) :]
        numbers = [int(each) for each in re.findall(r"\d+", mark.group())]
        ids = tuple(dict.fromkeys(SOURCES[n] for n in numbers if n in SOURCES))
        invalid = None if ids else spaces + mark.group()
        found.append(Citation(at=len(clean), ids=ids, invalid=invalid))
        done = mark.end()
    return clean + text[done:], found


def cut(text: str, places: list[int]) -> list[str]:
    """Cut a text at places."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("name", STRATEGIES)
@given(text=TEXTS, places=st.lists(st.integers(0, 200), max_size=12))
@example(text="One [1].", places=[4, 5, 6])
@example(text="a [1, b", places=[4])
@example(text="a <cite>1</cite <cite>2</cite>", places=[3, 15, 17])
def test_streamed_text_equals_the_whole(name: str, text: str, places: list[int]) -> None:
    """However a text is cut, its pieces join to the clean text, and nothing is taken back."""
    strategy = STRATEGIES[name]
    clean, citations = naive(text, strategy)
    reader = CitationReader(strategy, NUMBERING)
    shown = ""
    for piece in cut(text, places):
        shown += reader.feed(piece)
        assert clean.startswith(shown)
    assert shown + reader.close() == clean
    assert list(reader.citations) == citations
    assert read_citations(text, strategy, NUMBERING) == (clean, tuple(citations))


@pytest.mark.parametrize("name", STRATEGIES)
@given(text=TEXTS)
def test_text_is_held_only_where_a_mark_may_stand(name: str, text: str) -> None:
    """What is held back is spaces, or could still become a mark: a letter sets it free."""
    reader = CitationReader(STRATEGIES[name], NUMBERING)
    shown = reader.feed(text + "x")
    assert shown == naive(text + "x", STRATEGIES[name])[0]


@pytest.mark.parametrize(
    ("strategy", "text", "clean", "citations"),
    [
        (BRACKETS, "It is so [1].", "It is so.", [Citation(at=8, ids=("a",))]),
        (BRACKETS, "Both  [1, 2] hold", "Both hold", [Citation(at=4, ids=("a", "b"))]),
        (BRACKETS, "x[1][1]", "x", [Citation(at=1, ids=("a",))] * 2),
        (PARENS, "So (2).", "So.", [Citation(at=2, ids=("b",))]),
        (PARENS, "So (see 2).", "So (see 2).", []),
        (FOOTNOTES, "So [^1] [1].", "So [1].", [Citation(at=2, ids=("a",))]),
        (XML, "So <cite>1, 2</cite>!", "So!", [Citation(at=2, ids=("a", "b"))]),
        (BRACKETS, "Rows [3]!", "Rows!", [Citation(at=4, invalid=" [3]")]),
        (BRACKETS, "Mixed [3, 1]", "Mixed", [Citation(at=5, ids=("a",))]),
        (BRACKETS, f"Big [{'9' * 5000}]", "Big", [Citation(at=3, invalid=f" [{'9' * 5000}]")]),
    ],
)
def test_marks_are_read(
    strategy: CitationStrategy, text: str, clean: str, citations: list[Citation]
) -> None:
    """A mark goes with the spaces before it; offsets count in the clean text."""
    assert read_citations(text, strategy, NUMBERING) == (clean, tuple(citations))


def test_pieces_come_as_soon_as_they_are_certain() -> None:
    """Text flows on until a character that may open a mark, and again once it does not."""
    reader = CitationReader(BRACKETS, NUMBERING)
    pieces = ["See ", "this [", "1", "] and [not", " this] [1"]
    assert [reader.feed(each) for each in pieces] == ["See", " this", "", " and [not", " this]"]
    assert reader.close() == " [1"


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_read_what_they_write(name: str) -> None:
    """A written mark is read back as the same sources, and cannot be longer."""
    strategy = STRATEGIES[name]
    written = strategy.write([1, 2])
    clean, citations = read_citations(f"So {written}.", strategy, NUMBERING)
    assert clean == "So."
    assert [each for citation in citations for each in citation.ids] == ["a", "b"]
    assert written[0] in strategy.opens


def test_an_invalid_mark_is_shown_with_a_note() -> None:
    """By default a mark that named no source is shown as written, and the model is told."""
    shown = BRACKETS.write_invalid(" [3]")
    assert shown.startswith(" [3]")
    assert "no source" in shown


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: CitationStrategy(re.compile(r"\[1\]"), "", str), "opens"),
        (lambda: CitationStrategy(re.compile(r"\d*"), "[", str), "empty text"),
    ],
)
def test_strategies_that_find_nothing_are_refused(
    make: Callable[[], CitationStrategy], match: str
) -> None:
    """A strategy whose marks could not be found is a ValueError that says why."""
    with pytest.raises(ValueError, match=match):
        make()


def test_flags_of_a_pattern_hold_in_streams() -> None:
    """A pattern that ignores case is held back in any case."""
    strategy = CitationStrategy(re.compile(r"<REF (\d+)>", re.IGNORECASE), "<", str)
    reader = CitationReader(strategy, NUMBERING)
    assert [reader.feed(each) for each in ("So <re", "f 1", "> it")] == ["So", "", " it"]
    assert reader.citations == (Citation(at=2, ids=("a",)),)
