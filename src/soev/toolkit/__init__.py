"""Ready parts of agents, made of public names of `soev.runtime` and `soev.domain` alone."""

from soev.toolkit._citing import BRACKETS, FOOTNOTES, PARENS, XML
from soev.toolkit._compaction import Compacting, CompactStep
from soev.toolkit._effect_tools import EffectTool
from soev.toolkit._messages import MessageBuilder
from soev.toolkit._policies import ask_person, await_result, check_with, perform_again
from soev.toolkit._react import ReActAgent, ReActConfig
from soev.toolkit._structured import StructuredOutput
from soev.toolkit._subagents import SubAgents

__all__ = [
    "BRACKETS",
    "FOOTNOTES",
    "PARENS",
    "XML",
    "CompactStep",
    "Compacting",
    "EffectTool",
    "MessageBuilder",
    "ReActAgent",
    "ReActConfig",
    "StructuredOutput",
    "SubAgents",
    "ask_person",
    "await_result",
    "check_with",
    "perform_again",
]
