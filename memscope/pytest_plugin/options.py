"""The settings of a session: from the command line, a file of limits, and pyproject.toml.

The first of these that has a value decides: marker, command line, limits file, pyproject.toml. For
limits this holds for each metric on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    import pytest

    from memscope.analysis.limits.limits import Limit
    from memscope.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session.

    ``limits`` apply to every test. ``tolerance`` is None if none was given. ``problems`` are
    mistakes in pyproject.toml: they fail the session, not the tests.
    """

    limits: tuple[Limit, ...] = ()
    baseline: Path | None = None
    new_baseline: Path | None = None
    tolerance: float | None = None
    strict: bool = False
    repeat: int = 1
    warmup: int = 0
    output: Path | None = None
    problems: tuple[str, ...] = ()


def add_options(parser: pytest.Parser) -> None:
    """Add our options, all with the prefix ``--memscope-``."""
    add = parser.getgroup("memscope", "limits on memory").addoption
    add(
        "--memscope-limit",
        metavar="'METRIC OP VALUE'",
        action="append",
        default=[],
        help="limit for every test, marked or not (can be given several times)",
    )
    add(
        "--memscope-limits",
        metavar="FILE.toml",
        help="TOML file with limits = [...] for every test",
    )
    add(
        "--memscope-baseline",
        metavar="FILE",
        help="compare the metrics of marked tests with those in this file",
    )
    add(
        "--memscope-write-baseline",
        metavar="FILE",
        help="write the metrics of marked tests that pass to this file instead of comparing; "
        "entries of other tests are kept",
    )
    add(
        "--memscope-tolerance",
        metavar="SHARE",
        help="allowed difference from the baseline (default: 5%%)",
    )
    add(
        "--memscope-strict",
        action="store_true",
        help="fail a test if a limit could not be measured, instead of skipping it",
    )
    add(
        "--memscope-output",
        metavar="DIR",
        help="keep all recordings in this folder and write memscope-results.json there",
    )


def read_settings(config: pytest.Config) -> Settings:
    """The settings of a session. Raises MemscopeError for mistakes on the command line."""
    from memscope.configuration import parse_tolerance

    option, folder = config.option, config.invocation_params.dir
    configured, problems = _read_configuration(config.rootpath)
    limits, bad = _merge_limits(option.memscope_limit, _file_limits(config), configured)
    tolerance = option.memscope_tolerance
    if tolerance is not None:
        tolerance = parse_tolerance(tolerance)
    return Settings(
        limits=limits,
        baseline=_existing(_path(folder, option.memscope_baseline)) or configured.baseline,
        new_baseline=_writable(_path(folder, option.memscope_write_baseline)),
        tolerance=configured.tolerance if tolerance is None else tolerance,
        strict=option.memscope_strict or configured.strict,
        repeat=configured.repeat,
        warmup=configured.warmup,
        output=_make_folder(_path(folder, option.memscope_output)),
        problems=(*problems, *bad),
    )


def _read_configuration(folder: Path) -> tuple[Configuration, tuple[str, ...]]:
    from memscope.configuration import Configuration, read_configuration

    try:
        return read_configuration(folder), ()
    except MemscopeError as error:
        return Configuration(), (str(error),)


def _file_limits(config: pytest.Config) -> tuple[tuple[str, ...], str]:
    from memscope.configuration import read_limits_file

    path = _path(config.invocation_params.dir, config.option.memscope_limits)
    return (read_limits_file(path), str(path)) if path is not None else ((), "")


def _merge_limits(
    written: Sequence[str], file: tuple[tuple[str, ...], str], configured: Configuration
) -> tuple[tuple[Limit, ...], tuple[str, ...]]:
    """The limits of every test, and the problems of those in pyproject.toml."""
    texts, path = file
    if not (written or texts or configured.limits):
        return (), ()
    from memscope.analysis.limits.limits import override, parse_limits
    from memscope.pytest_plugin.source_lines import find_line

    named = override(parse_limits(written, "--memscope-limit"), parse_limits(texts, path))
    from_project: list[Limit] = []
    problems = []
    for text in configured.limits:
        try:
            line = find_line(str(configured.path), text)
            place = f"{configured.path}:{line}" if line else str(configured.path)
            from_project += parse_limits([text], place)
        except MemscopeError as error:
            problems.append(str(error))
    return override(named, tuple(from_project)), tuple(problems)


def _path(folder: Path, name: str | None) -> Path | None:
    return None if name is None else folder / name


def _existing(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise MemscopeError(
            f"{path} does not exist.", "Write it first: --memscope-write-baseline FILE."
        )
    return path


def _writable(path: Path | None) -> Path | None:
    if path is not None:
        from memscope.atomic_file import check_free

        check_free(path, force=True)
    return path


def _make_folder(path: Path | None) -> Path | None:
    try:
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemscopeError(
            f"{path} cannot be created ({error.strerror}).", "Name another --memscope-output."
        ) from None
    return path
