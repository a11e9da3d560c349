"""Writer of the report: figures as files, and one page that holds them all."""

from __future__ import annotations

import base64
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from adaptive_spec.errors import ConfigError, missing_extra
from adaptive_spec.sim.line_file import write_whole
from adaptive_spec.sim.report.figures import (
    REFERENCES,
    colours,
    draw_curves,
    load_pyplot,
    series,
)
from adaptive_spec.sim.report.leaderboard import by_load, settings
from adaptive_spec.sim.sweep.results import Row, SweepResults

if TYPE_CHECKING:
    from markupsafe import Markup

PAGE = "report.html"
STRONGEST = 0.15
"""Ratio 1 ± this has the strongest shade."""


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
    boards, by_setting = by_load(results)[-1:], settings(results)
    policies = [each.policy for board in boards for each in board.standings]
    policies = list(dict.fromkeys(policies))
    pictures: list[Path] = []
    for number, (setting, rows) in enumerate(by_setting, start=1):
        found = series(rows)
        lines = {name: found[name] for name in [*policies, *REFERENCES] if name in found}
        pictures.append(directory / f"{number:02d}-load.png")
        draw_curves(pyplot, setting.name, lines, pictures[-1])
    if len(by_setting) > 1:
        boards += [setting for setting, _ in by_setting]
    text = template.render(
        title="adaptive-spec sweep: "
        + ", ".join(policies[:4])
        + " and others" * (len(policies) > 4),
        version=results.version,
        seeds=len(results.config.seed_list()),
        boards=boards,
        colours=colours(policies),
        faults=_faults(results.rows),
        oracles=any(row.result.regret for row in results.rows),
        pictures=pictures,
        failures=results.failures,
        config=msgspec.yaml.encode(_without_defaults(results)).decode(),
        embedded=_embedded,
        shade=_shade,
        number=_number,
    )
    page = directory / PAGE
    write_whole(page, text.encode())
    return page


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("the report needs jinja2", "sim") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(text)


def _embedded(path: Path) -> Markup:
    from markupsafe import Markup

    data = base64.b64encode(path.read_bytes()).decode()
    html = '<figure><img alt="{0}" src="data:image/png;base64,{1}"><figcaption>{0}</figcaption>'
    html += "</figure>"
    return Markup(html).format(path.name, data)


def _shade(ratio: float | None) -> str:
    """A background that works on light and dark pages; blue and orange, for all eyes."""
    if ratio is None:
        return "none"
    strength = round(0.55 * min(abs(ratio - 1.0) / STRONGEST, 1.0), 3)
    return f"rgba({'0, 114, 178' if ratio > 1.0 else '213, 94, 0'}, {strength})"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _faults(rows: tuple[Row, ...]) -> list[str]:
    """Faults of runs that did not fail, so that their figures are not taken for clean."""
    found = []
    for policy in dict.fromkeys(row.result.policy for row in rows if row.kind == "policy"):
        same = [r for r in rows if r.kind == "policy" and r.result.policy == policy]
        if unused := sum(row.result.fail_opens for row in same):
            found.append(
                f"{policy}: {unused:,} decisions could not be used; the engine's own K ran"
            )
    if rejected := sum(row.result.rejected for row in rows):
        found.append(f"{rejected:,} requests, over all runs, could never fit into the KV pool")
    return found


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
