"""Run what the documentation shows: every block, every docstring example, every program.

A block runs by itself and then its `main`, when it has one and does not run it. `print` calls are
compared with the `#>` comments below them. A block that cannot run offline says why in its fence,
``python {compile="needs a server"}``, and is compiled only.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def blocks() -> Iterator[CodeExample]:
    """Find the Python blocks of README.md, `docs` and the docstrings, in a stable order."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    modules = sorted((ROOT / "src").rglob("*.py"))
    yield from find_examples(*(page for page in pages if page.exists()), *modules)


def where(block: CodeExample) -> str:
    """Name a block by its file and line."""
    return f"{block.path.relative_to(ROOT).as_posix()}:{block.start_line}"


def programs() -> Iterator[str]:
    """Yield the module names of the programs in `examples`."""
    if EXAMPLES.exists():
        for path in sorted(EXAMPLES.iterdir()):
            if (path / "__main__.py").exists():
                yield f"examples.{path.name}"
            elif path.suffix == ".py" and path.stem != "__init__":
                yield f"examples.{path.stem}"


@pytest.mark.parametrize("block", list(blocks()), ids=where)
def test_block_runs_and_prints_what_it_says(block: CodeExample, eval_example: EvalExample) -> None:
    """A block of the documentation does what the text around it says."""
    eval_example.set_config(line_length=100)
    call = None if "asyncio.run(main())" in block.source else "main"
    if "compile" in block.prefix_settings():
        compile(block.source, where(block), "exec")
    elif eval_example.update_examples:
        eval_example.run_print_update(block, call=call)
    else:
        eval_example.run_print_check(block, call=call)


@pytest.mark.parametrize("program", list(programs()))
def test_example_program_runs_offline(program: str, tmp_path: Path) -> None:
    """An example ends well in a fresh process, with no server, no key and nobody to ask."""
    offline = {"HOME": str(tmp_path), "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(
        [sys.executable, "-m", program],
        cwd=ROOT,
        env=offline,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
