"""A support desk for a shop: it answers from help pages, looks up orders and gives credits.

`agents` is the seam that everything uses: the program in `__main__`, the tests, and
`pytest --soev-replay`. Start reading in `agent.py`.
"""

from examples.support_desk.agent import agents

__all__ = ["agents"]
