"""How it is done: stores and models. Each adapter is one module or package of its own."""

from soev.adapters._http import ModelUnavailableError, RequestRefusedError
from soev.adapters._memory import InMemoryTraceStore
from soev.adapters._openai import OpenAIChatModel
from soev.adapters._postgres import PostgresTraceStore
from soev.adapters._scripted import (
    Hold,
    OffScriptError,
    Script,
    ScriptedChatModel,
    ScriptStep,
    UnusedStepsError,
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
from soev.adapters._sqlite import SqliteTraceStore

__all__ = [
    "Hold",
    "InMemoryTraceStore",
    "ModelUnavailableError",
    "OffScriptError",
    "OpenAIChatModel",
    "PostgresTraceStore",
    "RequestRefusedError",
    "Script",
    "ScriptStep",
    "ScriptedChatModel",
    "SqliteTraceStore",
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
