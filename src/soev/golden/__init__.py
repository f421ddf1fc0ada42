"""The pure parts of golden traces: files, rendering, differ, clusters, checks, scrubbing.

The pytest plugin and the `soev` command are made of these. Nothing here prints or asks.
"""

from soev.golden._agents import Agents, agents_of, load_agents
from soev.golden._calls import (
    CallsFile,
    Comparison,
    RouteException,
    ShownCall,
    ShownRequest,
    ShownTool,
)
from soev.golden._changes import (
    CallReport,
    Change,
    ChangeKind,
    Cluster,
    Problem,
    ProblemKind,
    TraceReport,
    Verdict,
)
from soev.golden._check import CheckOptions, check, damaged
from soev.golden._cluster import cluster
from soev.golden._conversation import ShownMessage, ShownMessages
from soev.golden._diff import diff_calls, diff_requests
from soev.golden._errors import (
    BadLineError,
    CatalogError,
    ConflictMarkersError,
    GoldenFileError,
    ImportRefusedError,
    SecretFoundError,
    TruncatedFileError,
    UnknownFormatError,
    UnprovenRecordingError,
)
from soev.golden._files import (
    CALLS_SUFFIX,
    TRACE_SUFFIX,
    GoldenHeader,
    GoldenTrace,
    calls_path,
    golden_text,
    golden_trace,
    read_golden,
    read_header,
    trace_name,
    write_golden,
    write_text,
)
from soev.golden._import import Imported, ImportOptions, import_conversations
from soev.golden._order import canonical_order
from soev.golden._parse import parse_calls
from soev.golden._record import Recording, Scrubbing, record
from soev.golden._render import render_calls
from soev.golden._scrub import refuse_secrets
from soev.golden._shown import Shower, shown
from soev.golden._summary import github_annotations, markdown, report_json, summary_lines
from soev.golden._text import Style, trace_text
from soev.golden._tidy import find_obsolete

__all__ = [
    "CALLS_SUFFIX",
    "TRACE_SUFFIX",
    "Agents",
    "BadLineError",
    "CallReport",
    "CallsFile",
    "CatalogError",
    "Change",
    "ChangeKind",
    "CheckOptions",
    "Cluster",
    "Comparison",
    "ConflictMarkersError",
    "GoldenFileError",
    "GoldenHeader",
    "GoldenTrace",
    "ImportOptions",
    "ImportRefusedError",
    "Imported",
    "Problem",
    "ProblemKind",
    "Recording",
    "RouteException",
    "Scrubbing",
    "SecretFoundError",
    "Shower",
    "ShownCall",
    "ShownMessage",
    "ShownMessages",
    "ShownRequest",
    "ShownTool",
    "Style",
    "TraceReport",
    "TruncatedFileError",
    "UnknownFormatError",
    "UnprovenRecordingError",
    "Verdict",
    "agents_of",
    "calls_path",
    "canonical_order",
    "check",
    "cluster",
    "damaged",
    "diff_calls",
    "diff_requests",
    "find_obsolete",
    "github_annotations",
    "golden_text",
    "golden_trace",
    "import_conversations",
    "load_agents",
    "markdown",
    "parse_calls",
    "read_golden",
    "read_header",
    "record",
    "refuse_secrets",
    "render_calls",
    "report_json",
    "shown",
    "summary_lines",
    "trace_name",
    "trace_text",
    "write_golden",
    "write_text",
]
