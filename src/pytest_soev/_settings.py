"""What a run was asked for: the options first, then the ini file."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from soev.golden import CheckOptions

DEFAULT_DIRECTORY = Path("tests", "golden")
_IMPLICIT = pytest.StashKey[bool]()


@dataclass(frozen=True, slots=True)
class Settings:
    """What a replay run was asked for.

    Args:
        root: The directory that reports name files relative to.
        directories: The directories with golden traces.
        update: What to accept, or None for nothing.
        obsolete: What a file does that nothing needs.
        checks: What a check is asked for.
        explicit: Whether the command line asks for the replay, and not the ini file alone.
    """

    root: Path
    directories: tuple[Path, ...]
    update: Literal["all", "new"] | None
    obsolete: Literal["fail", "warn"]
    checks: CheckOptions
    explicit: bool


def settings_of(config: pytest.Config) -> Settings:
    """Read the settings of a run.

    Raises:
        UsageError: A value does not fit, or a directory is not there.
    """
    return Settings(
        root=config.rootpath,
        directories=golden_directories(config),
        update=config.getoption("soev_update"),
        obsolete=_policy(config, "soev_obsolete"),
        checks=CheckOptions(
            unreplayable=_policy(config, "soev_unreplayable"),
            max_growth=_max_growth(config),
        ),
        explicit=bool(config.getoption("soev_replay")),
    )


def _policy(config: pytest.Config, key: str) -> Literal["fail", "warn"]:
    value = config.getini(key)
    if value == "fail":
        return "fail"
    if value == "warn":
        return "warn"
    raise pytest.UsageError(f"{key} = {value!r} in the ini file: write `fail` or `warn`.")


def _max_growth(config: pytest.Config) -> float | None:
    text = str(config.getini("soev_max_growth")).strip()
    if not text:
        return None
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not text.endswith("%") or not 0 <= percent < float("inf"):
        raise pytest.UsageError(
            f"soev_max_growth = {text!r} in the ini file: write a percentage such as `10%`, or "
            "nothing for any size."
        )
    return percent / 100


def golden_directories(config: pytest.Config) -> tuple[Path, ...]:
    """Return the directories with golden traces: the option's, else the ini file's.

    Raises:
        UsageError: One of them is not there.
    """
    origin = "--soev-golden" if config.getoption("soev_golden") else "soev_golden in the ini file"
    named = named_directories(config)
    for path in named:
        if not path.is_dir():
            raise pytest.UsageError(
                f"{origin} names {str(path)!r}, which is no directory. Correct it, or make "
                "the directory with `soev golden init`."
            )
    default = config.rootpath / DEFAULT_DIRECTORY
    return named or ((default,) if default.is_dir() else ())


def named_directories(config: pytest.Config) -> tuple[Path, ...]:
    """Return the golden directories that the option, else the ini file, names."""
    given = [config.invocation_params.dir / name for name in config.getoption("soev_golden")]
    paths = given or config.getini("soev_golden")
    return tuple(Path(os.path.abspath(path)) for path in paths)  # noqa: PTH100  # keeps links


def in_ci(config: pytest.Config) -> bool:
    """Whether this is a CI run: as the option says, else the environment variable CI."""
    choice = config.getoption("soev_ci")
    if choice == "auto":
        return os.environ.get("CI", "").lower() not in ("", "0", "false")
    return bool(choice == "on")


def refuse_implicit_update(config: pytest.Config) -> None:
    """Take back an update in CI that comes from `addopts` and not from the command line."""
    if is_worker(config) or not in_ci(config):
        return
    given = [str(arg) for arg in config.invocation_params.args]
    if not any(arg.partition("=")[0] == "--soev-update" for arg in given):
        config.option.soev_update = None
        config.stash[_IMPLICIT] = True


def update_was_refused(config: pytest.Config) -> bool:
    """Whether an update in CI was taken back."""
    return config.stash.get(_IMPLICIT, False)


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one, the controller of pytest-xdist."""
    return hasattr(config, "workerinput")


def replay_command(config: pytest.Config) -> str:
    """Return the command that replays the traces of this run again.

    Args:
        config: The configuration of the run.
    """
    words = ["pytest", "--soev-replay"]
    words += [f"--soev-golden={name}" for name in config.getoption("soev_golden")]
    place = config.getoption("soev_catalog")
    if place:
        words.append(f"--soev-catalog={place}")
    if config.args_source is pytest.Config.ArgsSource.INVOCATION_DIR:
        return shlex.join(words)
    named = {str(arg) for arg in config.invocation_params.args}
    return shlex.join([*words, *(arg for arg in config.args if arg in named)])
