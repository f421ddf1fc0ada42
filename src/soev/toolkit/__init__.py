"""Ready parts of agents, made of public names of `soev.runtime` and `soev.domain` alone."""

from soev.toolkit._citing import BRACKETS, FOOTNOTES, PARENS, XML
from soev.toolkit._compaction import Compacting, CompactStep
from soev.toolkit._messages import MessageBuilder
from soev.toolkit._react import ReActAgent, ReActConfig
from soev.toolkit._structured import StructuredOutput

__all__ = [
    "BRACKETS",
    "FOOTNOTES",
    "PARENS",
    "XML",
    "CompactStep",
    "Compacting",
    "MessageBuilder",
    "ReActAgent",
    "ReActConfig",
    "StructuredOutput",
]
