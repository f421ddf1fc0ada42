"""Elements that the tests of tools share."""

from typing import ClassVar

from soev.domain import Element, Source


class Document(Source):
    """A document that can be cited."""

    tag: ClassVar[str] = "document"

    title: str = ""


class Letter(Document):
    """A kind of document."""

    tag: ClassVar[str] = "letter"


class Order(Element):
    """An order that cannot be cited."""

    tag: ClassVar[str] = "order"

    total: int = 0
