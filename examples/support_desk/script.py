"""Steps for a scripted model that has read what it was shown.

A script cannot know the numbers that elements get. So a step looks them up in the request, as a
real model would.
"""

from __future__ import annotations

import re

from soev.adapters import ScriptStep, call, reply, say
from soev.domain import ChatRequest


def cited(text: str) -> ScriptStep:
    """Answer with a text that cites passages by their headings.

    Args:
        text: The text, with `{Heading}` where the passage of that heading is cited.
    """

    def answer(request: ChatRequest) -> ScriptStep:
        return say(re.sub(r"\{(.+?)\}", lambda mark: f"[{_passage(request, mark[1])}]", text))

    return reply(answer)


def credit(order: str, cents: int, reason: str) -> ScriptStep:
    """Call `give_credit` on an order that was looked up before.

    Args:
        order: The order's number, as the shop writes it.
        cents: How much.
        reason: What it is for.
    """

    def answer(request: ChatRequest) -> ScriptStep:
        number = _number(request, f"Order {order} ")
        return call("give_credit", order=number, cents=cents, reason=reason)

    return reply(answer)


def read_page(title: str) -> ScriptStep:
    """Call `read_page` on a page that was found before.

    Args:
        title: The page's title.
    """
    return reply(lambda request: call("read_page", page=_number(request, f"Help page: {title}")))


def _passage(request: ChatRequest, heading: str) -> str:
    return _found(request, rf"^\[(\d+)\] part of \[\d+\]: {re.escape(heading)}$")


def _number(request: ChatRequest, shown: str) -> str:
    return _found(request, rf"^\[(\d+)\] {re.escape(shown)}")


def _found(request: ChatRequest, line: str) -> str:
    """Return the number of the element whose first line matches a pattern."""
    for message in request.messages:
        found = re.search(line, message.text, re.MULTILINE)
        if found:
            return found[1]
    raise LookupError(f"No message of the request has a line that matches {line!r}.")
