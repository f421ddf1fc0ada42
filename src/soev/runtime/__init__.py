"""What happens: agents as graphs of steps, threads that run them, and replay of what they did."""

from soev.domain import (
    LeaseHeldError,
    PositionOutOfRangeError,
    ThreadExistsError,
    UnknownThreadError,
)
from soev.runtime._actions import (
    Action,
    End,
    Fault,
    HandBack,
    Intend,
    OpenTasks,
    Plan,
    Recover,
    RunStep,
    Trip,
)
from soev.runtime._agent import Agent, Resources, accepted
from soev.runtime._catalog import AgentCatalog
from soev.runtime._codec import CORE_EVENT_TYPES, EventTypes, encode, event_types_of
from soev.runtime._context import CitationStrategy, ContextBuilder, ModelContext
from soev.runtime._effects import EffectCancellation, Effector, EffectRecovery, EffectStep, abandon
from soev.runtime._errors import (
    AgentMismatchError,
    GraphMismatchError,
    InputDeniedError,
    MutableToolError,
    NothingToCancelError,
    ThreadActiveError,
    ToolDefinitionError,
    ToolResultError,
    UnknownAgentError,
    UnknownEventTypeError,
    UnreadableEventError,
    UnrecordedWholeError,
)
from soev.runtime._graph import Budget, Delegation, Edge, Graph, Node, Router, Step
from soev.runtime._limits import AtMost, Limit, at_most
from soev.runtime._live import LiveDelta
from soev.runtime._marks import ElementId, Recorded, ResultHandle
from soev.runtime._numbering import Numbering, numbering
from soev.runtime._outside import Status
from soev.runtime._plan import plan
from soev.runtime._planner import Planner
from soev.runtime._replay import ModelCall, refusing, replay
from soev.runtime._retrace import Divergence, retrace
from soev.runtime._runs import Runs
from soev.runtime._steps import LlmStep, RequestStep
from soev.runtime._thread import Thread
from soev.runtime._tool_def import tool_def
from soev.runtime._tool_step import ToolStep, call_arguments
from soev.runtime._tools import FunctionTool, Tool, ToolDecorator, tool
from soev.runtime._turn import ThreadState, cancelled, open_requests, opening_input, turn_starts

__all__ = [
    "CORE_EVENT_TYPES",
    "Action",
    "Agent",
    "AgentCatalog",
    "AgentMismatchError",
    "AtMost",
    "Budget",
    "CitationStrategy",
    "ContextBuilder",
    "Delegation",
    "Divergence",
    "Edge",
    "EffectCancellation",
    "EffectRecovery",
    "EffectStep",
    "Effector",
    "ElementId",
    "End",
    "EventTypes",
    "Fault",
    "FunctionTool",
    "Graph",
    "GraphMismatchError",
    "HandBack",
    "InputDeniedError",
    "Intend",
    "LeaseHeldError",
    "Limit",
    "LiveDelta",
    "LlmStep",
    "ModelCall",
    "ModelContext",
    "MutableToolError",
    "Node",
    "NothingToCancelError",
    "Numbering",
    "OpenTasks",
    "Plan",
    "Planner",
    "PositionOutOfRangeError",
    "Recorded",
    "Recover",
    "RequestStep",
    "Resources",
    "ResultHandle",
    "Router",
    "RunStep",
    "Runs",
    "Status",
    "Step",
    "Thread",
    "ThreadActiveError",
    "ThreadExistsError",
    "ThreadState",
    "Tool",
    "ToolDecorator",
    "ToolDefinitionError",
    "ToolResultError",
    "ToolStep",
    "Trip",
    "UnknownAgentError",
    "UnknownEventTypeError",
    "UnknownThreadError",
    "UnreadableEventError",
    "UnrecordedWholeError",
    "abandon",
    "accepted",
    "at_most",
    "call_arguments",
    "cancelled",
    "encode",
    "event_types_of",
    "numbering",
    "open_requests",
    "opening_input",
    "plan",
    "refusing",
    "replay",
    "retrace",
    "tool",
    "tool_def",
    "turn_starts",
]
