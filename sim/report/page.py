"""Writer of the report: figures as files, and one page that holds them all."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from adaptive_spec.errors import ConfigError, missing_extra
from adaptive_spec.sim.report.comparison import Comparison, Setting
from adaptive_spec.sim.report.figures import (
    Looks,
    draw_load_curves,
    draw_timeline,
    eventful_cells,
    load_pyplot,
)
from adaptive_spec.sim.report.leaderboard import conditions
from adaptive_spec.sim.report.tables import BOARD_COLUMNS, LoadTable, board_table, load_table
from adaptive_spec.sim.sweep.results import SweepResults
from adaptive_spec.sim.sweep.store import write_whole

if TYPE_CHECKING:
    from markupsafe import Markup

PAGE = "report.html"
OPEN_SECTIONS = 3
TIMELINES = 4


@dataclass(frozen=True)
class Picture:
    """A figure's file and what it says."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Part:
    """One family of loads within a setting."""

    table: LoadTable
    figure: Picture


@dataclass(frozen=True)
class Section:
    """One setting."""

    title: str
    parts: tuple[Part, ...]


def write_report(results: SweepResults, directory: Path) -> Path:
    """Write the page and its figures; returns the page.

    Raises ConfigError if matplotlib or jinja2 is not installed or the directory can't be used,
    DataError if a file can't be written.
    """
    template = _template()
    pyplot = load_pyplot()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {str(directory)!r}: {error.strerror}") from error
    comparison = Comparison(results)
    looks = Looks(comparison)
    sections = [
        _section(pyplot, comparison, setting, looks, directory, number)
        for number, setting in enumerate(comparison.settings, start=1)
    ]
    text = template.render(
        title="adaptive-spec sweep: " + _named(comparison.policies),
        subtitle=_subtitle(comparison),
        colours={policy: looks.of(policy).colour for policy in comparison.policies},
        boards=[board_table(each) for each in conditions(results)],
        board_columns=BOARD_COLUMNS,
        faults=_faults(results),
        has_oracles=comparison.has_oracles,
        seeds=comparison.seeds,
        sections=sections,
        open_sections=OPEN_SECTIONS,
        timelines=_timelines(pyplot, comparison, looks, directory),
        failures=results.failures,
        config=msgspec.yaml.encode(_without_defaults(results)).decode(),
        picture=_embedded,
    )
    page = directory / PAGE
    write_whole(page, text.encode())
    return page


def _section(
    pyplot: Any,
    comparison: Comparison,
    setting: Setting,
    looks: Looks,
    directory: Path,
    number: int,
) -> Section:
    parts = []
    for place, family in enumerate(comparison.families(setting), start=1):
        name = f"{number:02d}-{place}"
        path = directory / f"{name}-load.png"
        draw_load_curves(pyplot, comparison, setting, family, looks, path)
        figure = Picture(path, _curves_caption(comparison))
        parts.append(Part(load_table(comparison, setting, family), figure))
    return Section(setting.title, tuple(parts))


def _timelines(pyplot: Any, comparison: Comparison, looks: Looks, directory: Path) -> list[Picture]:
    pictures = []
    for number, (setting, load) in enumerate(eventful_cells(comparison, TIMELINES), start=1):
        path = directory / f"k-over-time-{number}.png"
        draw_timeline(pyplot, comparison, setting, load, looks, path)
        caption = "Grey: batch size. Lines: K of the policies that change it, first seed."
        pictures.append(Picture(path, caption))
    return pictures


def _embedded(picture: Picture) -> Markup:
    from markupsafe import Markup

    data = base64.b64encode(picture.path.read_bytes()).decode()
    html = '<figure><img alt="{0}" src="data:image/png;base64,{1}"><figcaption>{0} <span>({2})'
    html += "</span></figcaption></figure>"
    return Markup(html).format(picture.caption, data, picture.path.name)


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("the report needs jinja2", "sim") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(text)


def _curves_caption(comparison: Comparison) -> str:
    text = "Lines are means"
    if comparison.seeds > 1:
        text += f" over {comparison.seeds} seeds, bands their range"
    return text + "."


def _subtitle(comparison: Comparison) -> str:
    results = comparison.results
    loads = len({row.cell.load for row in results.rows})
    counts = (
        (len(comparison.policies), "policies", "policy"),
        (len(comparison.settings), "settings", "setting"),
        (loads, "loads", "load"),
        (comparison.seeds, "seeds", "seed"),
    )
    words = " × ".join(f"{n} {many if n != 1 else one}" for n, many, one in counts)
    return f"{words}; simulated by adaptive-spec {results.version}."


def _faults(results: SweepResults) -> list[str]:
    """Faults of runs that did not fail, so that their figures are not taken for clean."""
    found = []
    rows = [row for row in results.rows if row.kind == "policy"]
    for policy in dict.fromkeys(row.result.policy for row in rows):
        unused = sum(row.result.fail_opens for row in rows if row.result.policy == policy)
        if unused:
            found.append(
                f"{policy}: {unused:,} decisions could not be used; the engine's own K ran"
            )
    rejected = sum(row.result.rejected for row in results.rows)
    if rejected:
        found.append(f"{rejected:,} requests, over all runs, could never fit into the KV pool")
    return found


def _named(policies: tuple[str, ...]) -> str:
    shown = ", ".join(policies[:4])
    return shown if len(policies) <= 4 else f"{shown} and {len(policies) - 4} more"


def _without_defaults(results: SweepResults) -> dict[str, Any]:
    """The configuration as it was written, more or less."""
    config = results.config
    built: dict[str, Any] = msgspec.to_builtins(config)
    for field in msgspec.structs.fields(type(config)):
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if getattr(config, field.name) == default:
            del built[field.name]
    return built
