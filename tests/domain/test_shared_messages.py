"""What lists of messages that grew from each other have in common."""

from hypothesis import given
from hypothesis import strategies as st

from soev.domain import Messages, UserMessage


@given(st.data())
def test_shared_messages_are_those_that_both_begin_with(data: st.DataObject) -> None:
    """However lists grew and forked, what they say they share is the same in both."""
    pool = [Messages()]
    for _ in range(data.draw(st.integers(1, 8))):
        base = data.draw(st.sampled_from(pool))
        base = base.fork() if data.draw(st.booleans()) else base
        pool.append(base.add(*map(UserMessage, data.draw(st.lists(st.sampled_from("ab"))))))
    one, other = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
    count = one.shared(other)
    assert count == other.shared(one)
    assert one[:count] == other[:count]
    assert list(one.after(count)) == list(one)[count:]


def test_a_list_shares_all_of_what_it_grew_from() -> None:
    """The longer one begins with the shorter one, also after a fork and beside a sibling."""
    first = Messages([UserMessage("a"), UserMessage("b")])
    longer = first.add(UserMessage("c"))
    sibling = first.add(UserMessage("d"))
    forked = longer.fork().add(UserMessage("e"))
    assert (longer.shared(first), sibling.shared(longer), forked.shared(longer)) == (2, 2, 3)
    assert Messages([UserMessage("a")]).shared(first) == 0
