"""The page of the store contract and the suite say the same."""

import re
from pathlib import Path

from pytest_soev.suites import TraceStoreSuite

PAGE = Path(__file__).parent.parent.parent / "docs" / "store-contract.md"


def test_page_lists_the_clauses_of_the_suite() -> None:
    """Each clause stands on the page with its number and sentence, and no others do."""
    text = " ".join(PAGE.read_text("utf-8").split())
    listed = re.findall(r"\*\*([ARWLCD]\d+)\*\* (.*?)(?= - \*\*| ##)", text)
    told = [f"{number}: {sentence}" for number, sentence in listed]
    docs = [
        " ".join((getattr(TraceStoreSuite, name).__doc__ or "").split())
        for name in dir(TraceStoreSuite)
        if re.match(r"test_[arwlcd]\d", name)
    ]
    assert sorted(told) == sorted(docs)


def test_clauses_are_numbered_without_a_gap() -> None:
    """The clauses of a letter count from 1, and a test's name begins with its number."""
    numbers: dict[str, list[int]] = {}
    for name in sorted(dir(TraceStoreSuite)):
        if found := re.match(r"test_([arwlcd])(\d\d)_", name):
            number = int(found[2])
            doc = getattr(TraceStoreSuite, name).__doc__
            assert doc.startswith(f"{found[1].upper()}{number}: ")
            numbers.setdefault(found[1], []).append(number)
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
    assert set(numbers) == set("arwlcd")
