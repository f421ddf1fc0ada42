"""Conversations that show what the desk does, for a scripted model.

They are what `python -m examples.support_desk` plays, and what the golden traces are made of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from examples.support_desk.agent import LETTERS, NAME
from examples.support_desk.conversation import Conversation
from examples.support_desk.script import cited, credit, read_page
from soev.adapters import ScriptStep, call, calls, fail, say
from soev.domain import TransientError
from soev.runtime import Status

Move = Callable[[Conversation], Awaitable[Status]]


@dataclass(frozen=True)
class Scenario:
    """One conversation.

    Args:
        name: A short name, also that of its golden trace.
        steps: What the scripted model answers, call by call.
        moves: What people do, in order.
        agent: Whom they write to.
    """

    name: str
    steps: tuple[ScriptStep, ...]
    moves: tuple[Move, ...]
    agent: str = NAME


def customer(text: str) -> Move:
    """The customer says something."""
    return lambda conversation: conversation.say(text)


def approves() -> Move:
    """A person approves what is asked."""
    return lambda conversation: conversation.answer({"approved": True})


def denies(comment: str) -> Move:
    """A person denies what is asked, and says why."""
    return lambda conversation: conversation.answer({"approved": False, "comment": comment})


def resumes() -> Move:
    """Somebody resumes the turn."""
    return lambda conversation: conversation.resume()


def cancels() -> Move:
    """Somebody cancels the turn."""
    return lambda conversation: conversation.cancel()


TOUR: Final = Scenario(
    "tour",
    (
        call("search", query="return used gear"),
        cited(
            "Yes, within 60 days of delivery, as long as they are clean, dry and complete "
            "{How long you can return something}."
        ),
        calls(
            call("find_order", number="HO-10418"),
            call("search", query="small fault credit"),
            text="I am sorry to hear that. Let me look at the order.",
        ),
        cited(
            "For a fault that needs a repair we can credit up to 40 percent of the price "
            "{Credit for small faults}: that is 75.60 EUR for your Skerry 2. Shall I do that?"
        ),
        credit("HO-10418", 7560, "Zip of the inner tent fails, the customer keeps the tent"),
        say("Done: 75.60 EUR are credited on order HO-10418. Enjoy the tent!"),
    ),
    (
        customer("Can I return boots that I have hiked in?"),
        customer("And my tent HO-10418 has a zip that sticks. I would rather keep it, though."),
        customer("Yes, please."),
        approves(),
    ),
)

CITATION: Final = Scenario(
    "citation",
    (
        call("search", query="warranty broken pole"),
        read_page("Warranty and repairs"),
        cited(
            "Yes: our own tents have five years of warranty, and a pole that splits is covered "
            "{What the warranty covers}. Send us a photo and the order number; the repair is free, "
            "and so is the shipping {Repairs}. You can also buy a single section {Spare parts}."
        ),
    ),
    (customer("A pole of my three year old Skerry split. Is that covered?"),),
)

TURNS: Final = Scenario(
    "several-turns",
    (
        say("Hello! What can I do for you?"),
        call("search", query="shipping cost Austria"),
        cited("To Austria it costs 7.90 EUR, and nothing from 120 EUR {Shipping costs}."),
        call("search", query="delivery time Austria"),
        cited("Two to three working days {Delivery times}."),
        say("You are welcome!"),
    ),
    (
        customer("Hi!"),
        customer("What does shipping to Graz cost?"),
        customer("And how long does it take?"),
        customer("Thanks!"),
    ),
)

PARALLEL: Final = Scenario(
    "parallel-tools",
    (
        calls(
            call("find_order", number="ho-10462"),
            call("find_order", number="HO-10470"),
            call("find_order", number="HO-99999"),
            call("search", query="cancel order packed"),
        ),
        cited(
            "HO-10470 is not paid yet, so you can cancel it in your account. HO-10462 is packed "
            "already: refuse the parcel at the door and it comes back at no cost "
            "{Cancelling an order}. I find no order HO-99999; is the number right?"
        ),
    ),
    (customer("Please cancel HO-10462, HO-10470 and HO-99999."),),
)

SMALL_CREDIT: Final = Scenario(
    "small-credit",
    (
        call("find_order", number="HO-10433"),
        call("search", query="credit scratches stains"),
        credit("HO-10433", 400, "Scratch on the mug"),
        say("I am sorry about the scratch. 4.00 EUR are credited to your account."),
    ),
    (customer("The titanium mug of HO-10433 came with a scratch. A small credit would do."),),
)

APPROVED: Final = Scenario(
    "credit-approved",
    (
        call("find_order", number="HO-10457"),
        credit("HO-10457", 6000, "Seam of the boots is glued badly, the customer keeps them"),
        say("60.00 EUR are credited on order HO-10457."),
    ),
    (customer("The boots of HO-10457 have a bad seam. I keep them for 60 euros less."), approves()),
)

DENIED: Final = Scenario(
    "credit-denied",
    (
        call("find_order", number="HO-10462"),
        credit("HO-10462", 60000, "The customer wants most of the price back"),
        call("search", query="refund return money back"),
        cited(
            "I cannot give that credit: the order has not left us yet. You can send the tent back "
            "when it is there and get the whole price back {When the money comes back}."
        ),
    ),
    (
        customer("I want 600 euros back for HO-10462, and to keep the tent."),
        denies("Not before it is delivered. Offer the return."),
    ),
)

TWO_APPROVALS: Final = Scenario(
    "two-approvals",
    (
        calls(call("find_order", number="HO-10418"), call("find_order", number="HO-10457")),
        calls(
            call("give_credit", order="1", cents=5500, reason="Stain on the fly"),
            call("give_credit", order="2", cents=9000, reason="Sole comes off"),
            call("search", query="resole boots"),
        ),
        cited(
            "55.00 EUR are credited for the stain. For the boots a colleague said no; a glued sole "
            "can be replaced for 75 EUR {Care}."
        ),
    ),
    (
        customer("A stain on the tent of HO-10418, a loose sole at HO-10457: 55 and 90 euros?"),
        approves(),
        denies("Boots with a loose sole are to be resoled."),
    ),
)

BUDGET: Final = Scenario(
    "budget-trip",
    (
        *(call("find_order", number=f"HO-1040{digit}") for digit in range(10)),
        *(call("find_order", number=f"HO-1041{digit}") for digit in (0, 1, 2)),
        say("I tried thirteen numbers and found no order of yours. What does your mail say?"),
    ),
    (customer("My order number is HO-104 and something. Just try them all."),),
)

UNKNOWN_TOOL: Final = Scenario(
    "unknown-tool",
    (
        call("cancel_order", number="HO-10470"),
        call("search", query="cancel order"),
        cited(
            "I cannot cancel it myself. You can, in your account under 'Cancel order' "
            "{Cancelling an order}."
        ),
    ),
    (customer("Cancel HO-10470."),),
)

WRONG_ARGUMENTS: Final = Scenario(
    "wrong-arguments",
    (
        calls(
            call("give_credit", order="7", cents=500, reason="Late parcel"),
            call("find_order"),
            call("search", query="what is it"),
        ),
        say("Which order is it about? [9]"),
        call("find_order", number="HO-10433"),
        say("It was delivered on 6 March."),
    ),
    (customer("My parcel is late, give me 5 euros."), customer("HO-10433, sorry.")),
)

FAILURE: Final = Scenario(
    "model-failure",
    (
        call("search", query="stove yellow flame"),
        fail(TransientError("The model's server answered 503.")),
        cited(
            "Too little air, or a dirty jet: let it cool, unscrew the jet and clean it "
            "{A stove that burns badly}."
        ),
    ),
    (customer("Why does my stove burn yellow?"), resumes()),
)

CANCELLED: Final = Scenario(
    "cancelled",
    (
        call("find_order", number="HO-10418"),
        credit("HO-10418", 9000, "Mildew"),
        say("All right, no credit then. What else can I do for you?"),
    ),
    (
        customer("Credit me 90 euros for the mildew on HO-10418."),
        cancels(),
        customer("Forget it, I dried it wet. My fault."),
    ),
)

LETTER: Final = Scenario(
    "letter",
    (
        call(
            "ask_desk",
            input="Order HO-10418: a zip of the tent sticks. The customer keeps it for 75.60 EUR.",
        ),
        call("find_order", number="HO-10418"),
        credit("HO-10418", 7560, "Zip of the inner tent sticks, the customer keeps the tent"),
        say("75.60 EUR are credited on order HO-10418."),
        call("ask_desk", input="What does shipping to Austria cost?"),
        call("search", query="shipping cost Austria"),
        cited("To Austria it costs 7.90 EUR, and nothing from 120 EUR {Shipping costs}."),
        say(
            "Dear Greta,\nwe have credited 75.60 EUR for the zip. Shipping to Austria costs 7.90 "
            "EUR, and nothing from 120 EUR.\nYour Halden Outdoor"
        ),
    ),
    (
        customer(
            "Dear Halden team, a zip of my tent (HO-10418) sticks. I would keep it for 75.60 EUR. "
            "And what would you ask for shipping to Graz? Yours, Greta"
        ),
        approves(),
    ),
    LETTERS,
)

_QUESTIONS: Final = (
    (
        "How do I store a tent?",
        "tent storing",
        "Dry, loosely packed in a cotton sack {Drying and storing}.",
    ),
    (
        "Which cartridges fit?",
        "gas cartridges",
        "Any screw cartridge that follows EN 417 {Which fuel}.",
    ),
    (
        "When is my card charged?",
        "card charged",
        "When the parcel leaves, not before {Ways to pay}.",
    ),
    ("Can I get boots resoled?", "resole boots", "Once, if the sole is glued, for 75 EUR {Care}."),
    (
        "How long is a gift card valid?",
        "gift card valid",
        "Four years from the year's end {Using a gift card}.",
    ),
)

LONG: Final = Scenario(
    "long",
    tuple(
        step
        for number in range(45)
        for _, words, answer in [_QUESTIONS[number % len(_QUESTIONS)]]
        for step in (call("search", query=f"{words} {number}"), cited(answer))
    ),
    tuple(customer(f"{_QUESTIONS[n % len(_QUESTIONS)][0]} ({n + 1})") for n in range(45)),
)

SCENARIOS: Final = (
    TOUR,
    CITATION,
    TURNS,
    PARALLEL,
    SMALL_CREDIT,
    APPROVED,
    DENIED,
    TWO_APPROVALS,
    BUDGET,
    UNKNOWN_TOOL,
    WRONG_ARGUMENTS,
    FAILURE,
    CANCELLED,
    LETTER,
    LONG,
)
