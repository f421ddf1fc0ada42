"""A model that answers from a script, and the steps of scripts."""

from soev.adapters._scripted._model import (
    OffScriptError,
    Script,
    ScriptedChatModel,
    UnusedStepsError,
)
from soev.adapters._scripted._steps import (
    Hold,
    ScriptStep,
    call,
    calls,
    fail,
    forever,
    hold,
    optional,
    reply,
    say,
    stream,
    think,
)

__all__ = [
    "Hold",
    "OffScriptError",
    "Script",
    "ScriptStep",
    "ScriptedChatModel",
    "UnusedStepsError",
    "call",
    "calls",
    "fail",
    "forever",
    "hold",
    "optional",
    "reply",
    "say",
    "stream",
    "think",
]
