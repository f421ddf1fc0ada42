"""The shop's help pages, and the full-text index over them."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from soev.domain import InvalidQueryError, Source

PAGES = Path(__file__).parent / "pages"

# Words that are in every page would only blur the ranking.
_COMMON = frozenset(
    {"a", "an", "and", "are", "can", "do", "does", "for", "how", "i", "in", "is", "it", "my", "of"}
    | {"on", "or", "the", "to", "what", "when", "where", "which", "with", "you", "your"}
)


class Article(Source):
    """A help page. Its passages name it as their whole."""

    tag: ClassVar[str] = "article"

    title: str

    def show(self) -> str:
        """Show the title: what it says is in its passages."""
        return f"Help page: {self.title}"


class Passage(Source):
    """A section of a help page."""

    tag: ClassVar[str] = "passage"

    heading: str
    text: str

    def show(self) -> str:
        """Show the heading above the text."""
        return f"{self.heading}\n{self.text}"


class Knowledge:
    """All help pages in a full-text index in memory.

    Args:
        folder: A folder of Markdown files. A file is an article, its `##` sections are passages.
    """

    def __init__(self, folder: Path = PAGES) -> None:
        self._articles: dict[str, Article] = {}
        self._passages: dict[str, Passage] = {}
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute(
            "CREATE VIRTUAL TABLE passages USING fts5"
            "(id UNINDEXED, title, heading, body, tokenize = 'porter unicode61')"
        )
        for path in sorted(folder.glob("*.md")):
            self._add(path)

    def close(self) -> None:
        """Drop the index."""
        self._index.close()

    def _add(self, path: Path) -> None:
        head, *sections = re.split(r"^## ", path.read_text("utf-8"), flags=re.MULTILINE)
        article = Article(id=path.stem, title=head.strip().removeprefix("# "))
        self._articles[article.id] = article
        for number, section in enumerate(sections, 1):
            heading, _, body = section.partition("\n")
            text = " ".join(body.split())
            passage = Passage(
                id=f"{path.stem}#{number}", ref=article.id, heading=heading.strip(), text=text
            )
            self._passages[passage.id] = passage
            self._index.execute(
                "INSERT INTO passages VALUES (?, ?, ?, ?)",
                (passage.id, article.title, passage.heading, passage.text),
            )

    def search(self, query: str, limit: int = 3) -> Sequence[Article | Passage]:
        """Return the best passages for some words, each after its article.

        Args:
            query: The words. Operators of the index have no meaning here.
            limit: The most passages to return.

        Raises:
            InvalidQueryError: No word is left to search for.
        """
        words = [word for word in re.findall(r"\w+", query.lower()) if word not in _COMMON]
        if not words:
            raise InvalidQueryError(f"{query!r} has no word to search for. Name the subject.")
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        with self._lock:
            rows = self._index.execute(
                "SELECT id FROM passages WHERE passages MATCH ? "
                "ORDER BY bm25(passages, 0, 1, 2, 1), id LIMIT ?",
                (match, limit),
            ).fetchall()
        return tuple(self._with_articles(self._passages[row[0]] for row in rows))

    def passages(self, article_id: str) -> Sequence[Passage]:
        """Return all passages of an article, in the order of the page.

        Args:
            article_id: The id of the article.
        """
        return [each for each in self._passages.values() if each.ref == article_id]

    def _with_articles(self, passages: Iterator[Passage]) -> Iterator[Article | Passage]:
        shown: set[str] = set()
        for passage in passages:
            if passage.ref is not None and passage.ref not in shown:
                shown.add(passage.ref)
                yield self._articles[passage.ref]
            yield passage
