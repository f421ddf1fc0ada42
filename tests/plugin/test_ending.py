"""One process writes what workers accept, in whatever order their reports arrive."""

import asyncio
from itertools import permutations

import pytest

from pytest_soev._ending import Ending
from pytest_soev._found import Found
from pytest_soev._settings import settings_of
from soev.golden import CheckOptions, check, parse_calls, read_golden

from .shop import PLUGIN, SHORT, Shop, shop_module

BOTH = [False, True]


def found(shop: Shop, *, routes: bool) -> Found:
    """Return what a worker finds about today's prompt, before anything is written."""
    module = shop_module(SHORT)
    golden = read_golden(shop.trace(), "tests/golden/refund.soev.jsonl")
    options = CheckOptions(routes=routes)
    accepted = shop.calls().read_text("utf-8")
    report = asyncio.run(check(golden, accepted, module.agents(), options))
    return Found("tests/golden/refund.soev.jsonl", report, routes=routes, accept=True)


@pytest.mark.parametrize("order", list(permutations(BOTH)))
def test_requests_and_routes_are_both_kept(shop: Shop, order: tuple[bool, ...]) -> None:
    """The calls file has the new requests and the new exceptions, whichever comes first."""
    shop.ini("soev_routes = true")
    text = shop.trace().read_text("utf-8").replace('"origin":"tools"', '"origin":"search"')
    shop.trace().write_text(text, "utf-8", newline="\n")
    config = shop.pytester.parseconfigure(*PLUGIN, "--soev-update")
    ending = Ending(config, settings_of(config))
    results = {routes: found(shop, routes=routes) for routes in BOTH}
    for routes in order:
        ending.take(f"item of {routes}", results[routes])
    accepted = shop.calls().read_text("utf-8")
    assert SHORT in accepted
    assert str(parse_calls(accepted).routes[0]) == "route: model -> tools (recorded: search)"


def test_what_travels_comes_back_equal(shop: Shop) -> None:
    """A finding that JSON carried to the controller is the same finding."""
    one = found(shop, routes=False)
    assert Found.from_json(one.to_json()) == one
