"""`soev golden init` and `soev golden add`."""

import asyncio
from pathlib import Path

import pytest

from soev.adapters import SqliteTraceStore
from soev.domain import Head
from soev.golden import CheckOptions, check, read_golden
from tests.plugin.shop import conversation, shop_module

from .conftest import Soev

ATTRIBUTES = """\
*.calls.md diff=markdown text eol=lf
*.soev.jsonl -diff linguist-generated text eol=lf
"""


@pytest.fixture
def store(project: Path) -> str:
    """A store that holds the conversation as the thread `t-1`, and nothing else."""
    path, log = project / "threads.db", conversation()

    async def fill() -> None:
        async with SqliteTraceStore(path) as made:
            head = Head()
            batch = []
            for event in log:
                batch.append(event)
                if not event.left:
                    entries = await made.append("t-1", batch, after=head, batch=f"b{head.position}")
                    head = (await made.read("t-1", after=entries[-1].position)).head
                    batch = []

    asyncio.run(fill())
    return f"sqlite:{path.name}"


def test_init_writes_attributes_and_says_what_to_do(soev: Soev, project: Path) -> None:
    """The directory is made, with what git needs to know, and the next commands are printed."""
    result = soev("golden", "init")
    assert result.exit_code == 0
    assert (project / "tests/golden/.gitattributes").read_text("utf-8") == ATTRIBUTES
    assert "exclude: ^tests/golden/.*\\.(calls\\.md|soev\\.jsonl)$" in result.output
    assert "pytest --soev-replay" in result.output


def test_init_keeps_what_is_there(soev: Soev, project: Path) -> None:
    """Lines of the project stay, ours are added once, and a second run changes nothing."""
    directory = project / "kept"
    directory.mkdir()
    (directory / ".gitattributes").write_text("*.png binary\n", "utf-8")
    assert soev("golden", "init", "kept").output.startswith("wrote kept/.gitattributes\n")
    assert soev("golden", "init", "kept").output.startswith("as it should be: kept/")
    assert (directory / ".gitattributes").read_text("utf-8") == "*.png binary\n" + ATTRIBUTES


def test_init_takes_the_directory_of_the_ini_file(soev: Soev, project: Path) -> None:
    """Without an argument the first directory of `soev_golden` is prepared."""
    (project / "pytest.ini").write_text("[pytest]\nsoev_golden = a b\n", "utf-8")
    assert soev("golden", "init").exit_code == 0
    assert (project / "a/.gitattributes").exists()


def test_init_says_when_it_cannot_write(soev: Soev, project: Path) -> None:
    """A file that stands in the way is named."""
    (project / "tests").write_text("", "utf-8")
    result = soev("golden", "init")
    assert result.exit_code == 1
    assert "Error: tests/golden/.gitattributes is not written: " in result.output


def test_add_makes_a_trace_that_replays(soev: Soev, project: Path, store: str) -> None:
    """A thread of a store becomes two files that today's code is held to."""
    result = soev("golden", "add", "--store", store, "--thread", "t-1", "--name", "refund")
    assert result.exit_code == 0, result.output
    assert "wrote tests/golden/refund.soev.jsonl: events 9, model calls 3" in result.output
    golden = read_golden(project / "tests/golden/refund.soev.jsonl")
    assert golden.header.source == "store:threads.db"
    assert golden.header.scrubbed == ("ids", "times", "secrets")
    accepted = (project / "tests/golden/refund.calls.md").read_text("utf-8")
    agents = shop_module().agents()
    for routes in (False, True):
        report = asyncio.run(check(golden, accepted, agents, CheckOptions(routes=routes)))
        assert report.verdict == "same"


def test_add_takes_a_part_of_a_thread(soev: Soev, project: Path, store: str) -> None:
    """`--until` ends the trace at the end of an append, and a path alone names the store."""
    args = ("--store", store.removeprefix("sqlite:"), "--thread", "t-1", "--until", 6)
    assert soev("golden", "add", *args, "--name", "one", "--golden", "kept").exit_code == 0
    assert len(read_golden(project / "kept/one.soev.jsonl").events) == 6


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--store", "redis:x"], 2, "no store can be opened at 'redis:x': write `sqlite:PATH`."),
        (["--store", "sqlite:lost.db"], 2, "there is no store at 'lost.db': no such file."),
        (["--store", "shop.py"], 1, "shop.py: "),
        (["--thread", "t-2"], 1, "has no thread 't-2'. Its latest threads: 't-1'"),
        (["--until", "1"], 1, "position 1 is inside an append"),
        (["--until", "99"], 1, "position 99 is beyond the end: thread 't-1' has 9 events"),
        (["--until", "0"], 2, "0 is not in the range x>=1"),
        (["--name", "../refund"], 2, "'../refund' is no name for a golden trace"),
        (["--catalog", "shop:lost"], 2, "`shop` has no attribute `lost`"),
        (["--catalog", "nowhere:agents"], 2, "there is no module `nowhere` to import"),
    ],
)
def test_add_refuses(
    soev: Soev, project: Path, store: str, args: list[str], code: int, message: str
) -> None:
    """What is wrong is named. Wrong usage exits with 2, wrong data with 1; nothing is left."""
    given = ["--store", store, "--thread", "t-1", "--name", "refund", *args]
    result = soev("golden", "add", *given)
    assert result.exit_code == code
    assert message in result.output
    assert not (project / "tests").exists()


def test_add_never_writes_over_a_trace(soev: Soev, project: Path, store: str) -> None:
    """A name that is taken is refused, and the file keeps its bytes."""
    args = ("golden", "add", "--store", store, "--thread", "t-1", "--name", "refund")
    soev(*args)
    before = (project / "tests/golden/refund.soev.jsonl").read_bytes()
    result = soev(*args)
    assert result.exit_code == 2
    assert "tests/golden/refund.soev.jsonl is there already." in result.output
    assert (project / "tests/golden/refund.soev.jsonl").read_bytes() == before


def test_add_without_a_catalog_says_where_to_name_one(
    soev: Soev, project: Path, store: str
) -> None:
    """Without agents there is no proof, so the command asks for them."""
    (project / "pyproject.toml").unlink()
    result = soev("golden", "add", "--store", store, "--thread", "t-1", "--name", "refund")
    assert result.exit_code == 2
    assert "`--catalog shop.agents:agents`, or with the ini key `soev_catalog`." in result.output


def test_add_of_a_thread_of_another_agent(soev: Soev, project: Path, store: str) -> None:
    """An agent that the catalog does not have is named with those that it has."""
    text = (project / "shop.py").read_text("utf-8")
    (project / "shop.py").write_text(text.replace('{"assistant":', '{"helper":'), "utf-8")
    result = soev("golden", "add", "--store", store, "--thread", "t-1", "--name", "refund")
    assert result.exit_code == 1
    assert "'assistant'" in result.output
    assert "helper" in result.output


def test_add_scrubs_by_the_patterns_of_the_project(soev: Soev, project: Path, store: str) -> None:
    """`soev_redact` of the ini file holds here as in tests."""
    with (project / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\nsoev_redact = ["José"]\n')
    result = soev("golden", "add", "--store", store, "--thread", "t-1", "--name", "refund")
    assert result.exit_code == 0, result.output
    text = (project / "tests/golden/refund.soev.jsonl").read_text("utf-8")
    assert "José" not in text
    assert "<secret-1>" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [('soev_redact = ["(" ]', "`soev_redact` has '('"), ("soev_redact = [", "cannot be read")],
)
def test_a_broken_configuration_is_named(
    soev: Soev, project: Path, store: str, line: str, message: str
) -> None:
    """A pattern or a file that cannot be read ends the command."""
    with (project / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = soev("golden", "add", "--store", store, "--thread", "t-1", "--name", "refund")
    assert result.exit_code == 2
    assert message in result.output
