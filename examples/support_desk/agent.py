"""The agents: their prompts, their tools, and what a person must approve."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from examples.support_desk.knowledge import Article, Knowledge, Passage
from examples.support_desk.orders import Ledger, Order, OrderBook, euros
from soev.adapters import OpenAIChatModel
from soev.domain import ChatModel, EffectIntent, EffectResult, InvalidQueryError, ToolOutput
from soev.runtime import Agent, Budget, ElementId, Tool, at_most, tool
from soev.toolkit import (
    BRACKETS,
    EffectTool,
    ReActAgent,
    ReActConfig,
    await_result,
    perform_again,
)

NAME = "support_desk"
LETTERS = "letters"
APPROVE_ABOVE_CENTS = 5_000

PROMPT = """\
You are the support desk of Halden Outdoor, a shop for camping gear.
Answer from the help pages alone: search them before you say how something works here.
Look an order up before you say anything about it. Ask for the order number if you need it.
A credit must follow the help pages. Give one only when the customer agrees to it.
Answer in at most four sentences, in the language of the customer.
If the pages do not say it, say so and offer to pass the question on."""

LETTERS_PROMPT = """\
You answer the letters that customers of Halden Outdoor write.
Give each matter of a letter to the desk, one after the other, with all that the letter says of it.
Then write one reply from what the desk answers. Add nothing of your own."""


@dataclass(frozen=True)
class Desk:
    """What the agent's tools use. The program makes one when it starts, and closes it."""

    knowledge: Knowledge = field(default_factory=Knowledge)
    orders: OrderBook = field(default_factory=OrderBook)
    ledger: Ledger = field(default_factory=Ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.knowledge.close()
        self.ledger.close()


@tool(
    name="search",
    description="Search the help pages. Use two to five keywords, not a sentence.",
    limit=at_most(
        8, calls="search", error="That is enough searching. Answer with what you have found."
    ),
)
async def search(query: str, *, knowledge: Knowledge) -> ToolOutput:
    """Find passages. What is shown of them can be cited."""
    found = await asyncio.to_thread(knowledge.search, query)
    return ToolOutput(text="" if found else "Nothing was found.", elements=tuple(found))


@tool(
    name="read_page",
    description="Read a whole help page, when a passage of it is not enough.",
)
async def read_page(
    page: Annotated[str, ElementId(Article)], *, knowledge: Knowledge
) -> ToolOutput:
    """Show all passages of a page that was found before."""
    return ToolOutput(elements=tuple(knowledge.passages(page)))


@tool(name="find_order", description="Look up an order by its number, such as HO-10418.")
async def find_order(number: str, *, orders: OrderBook) -> ToolOutput:
    """Show an order, so that other tools can be used on it."""
    return ToolOutput(elements=(orders.find(number),))


class GiveCredit(BaseModel):
    """What the model says of a credit. The order was looked up before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    order: Annotated[Order, ElementId()]
    cents: Annotated[int, Field(gt=0)]
    reason: str


class Credit(BaseModel):
    """A credit as its intent has it: the order by its id."""

    order: str
    cents: int
    reason: str


@dataclass(frozen=True)
class Crediting:
    """Gives credits. The id of the intent is the key by which the ledger knows a repeat."""

    ledger: Ledger
    orders: OrderBook

    async def perform(self, intent: EffectIntent) -> EffectResult:
        """Give the credit, or say why it is refused."""
        credit = Credit.model_validate(intent.args)
        order = self.orders.of_id(credit.order)
        try:
            await asyncio.to_thread(
                self.ledger.credit, str(intent.id), order, credit.cents, credit.reason
            )
        except InvalidQueryError as refused:
            return EffectResult(error=str(refused))
        return EffectResult(output={"order": order.number, "credited": euros(credit.cents)})


def approve_credit(arguments: Any) -> str | None:
    """Ask a person about a credit above the amount that the desk may give by itself."""
    if arguments.cents <= APPROVE_ABOVE_CENTS:
        return None
    order: Order = arguments.order
    return (
        f"Credit {euros(arguments.cents)} on order {order.number} of {euros(order.total_cents)}? "
        f"Reason: {arguments.reason}"
    )


def tools(desk: Desk, turn: BaseModel) -> Sequence[Tool[Any]]:
    """Bind the tools to what the program made. Nothing is asked of it here."""
    return (
        search.bind(knowledge=desk.knowledge),
        read_page.bind(knowledge=desk.knowledge),
        find_order.bind(orders=desk.orders),
    )


def effects(desk: Desk, turn: BaseModel) -> Sequence[EffectTool]:
    """Return the tools that change something. The ledger drops repeats, so they can be repeated."""
    credit = EffectTool(
        name="give_credit",
        description=(
            "Credit part of an order's price, in cents, to the customer's account. "
            "A person may have to approve it first."
        ),
        arguments=GiveCredit,
        effector=Crediting(desk.ledger, desk.orders),
        recovery=perform_again,
        cancellation=await_result,
    )
    return (credit,)


def agents(model: ChatModel | None = None) -> dict[str, Agent[Any, Any]]:
    """Return the agents of this program, by name.

    Args:
        model: The model to use, or None for the one that the shop runs on.
    """
    model = model or OpenAIChatModel()
    config = ReActConfig(
        model=model,
        prompt=PROMPT,
        tools=tools,
        effects=effects,
        approvals={"give_credit": approve_credit},
        budget=Budget(cap=12, resume_at="model", tolerance=1),
        citations=BRACKETS,
        element_types=(Article, Passage, Order),
        description="Ask the desk about one matter. It knows help pages, orders and credits.",
    )
    desk = ReActAgent(config)
    letters = ReActAgent(
        ReActConfig(model=model, prompt=LETTERS_PROMPT, subagents={"ask_desk": desk})
    )
    return {NAME: desk, LETTERS: letters}
