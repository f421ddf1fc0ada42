"""Elements, and a tool over them, that the tests of tools share."""

from typing import Annotated, ClassVar

from soev.domain import Element, Source, ToolOutput
from soev.runtime._marks import ElementId, Recorded, ResultHandle
from soev.runtime._tools import tool


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


@tool(name="read", description="Read.")
async def read(
    doc: Annotated[str, ElementId(Document)],
    order: Annotated[Order, ElementId()] | None = None,
    result: Annotated[str, ResultHandle()] | None = None,
    *,
    seen: Recorded[Document],
) -> ToolOutput:
    """Say what it got."""
    return ToolOutput(text=f"{doc} {order and order.total} {result} {[each.id for each in seen]}")
