"""The command-line program `adaptive-spec`.

Commands import their dependencies when they run. An error of this package prints one line on stderr
and exits with code 2; `doctor` exits with 1 if it found a problem.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from adaptive_spec import __version__
from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.commands.terminal import console, print_json, print_text, run_on_terminal
from adaptive_spec.config import KEY, Config, load_config_file, mistaken_names, parse_config
from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.installed_parts import installed_parts

if TYPE_CHECKING:
    from adaptive_spec.commands.doctor import Report, SourceReport

COMMANDS = "adaptive_spec.commands"
"""Entry-point group of commands; a value is a function for typer or a `typer.Typer`."""

_DISTRIBUTION = "adaptive-spec"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

SERVE, SIMULATE, EXTEND = "Serve", "Simulate", "Extend"
_PANELS = {
    "advise": SERVE,
    "breakeven": SERVE,
    "explain": SERVE,
    "fit": SIMULATE,
    "profile": SIMULATE,
    "prove": SERVE,
    "replay": SIMULATE,
    "report": SIMULATE,
    "sweep": SIMULATE,
    "top": SERVE,
    "trace": SERVE,
    "trtllm": SERVE,
}
"""Group of each command that another part brings; those of other packages: `EXTEND`."""

REMOVED = {"evaluate": "`adaptive-spec advise`, or `adaptive-spec prove` on a running server"}
"""Commands removed in 0.2, and what to use. For one release."""

app = typer.Typer(
    help="""Decides how much an LLM server speculates.

    Check this environment: adaptive-spec doctor

    Watch a server: adaptive-spec top localhost:8000

    Is it worth it on recorded traffic: adaptive-spec advise TRACES

    Without a server: adaptive-spec replay
    """,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the console script."""
    run_on_terminal(_run)


def _run() -> None:
    try:
        words = sys.argv[1:] or ["--help"]
        if words[0] in ("tensorrt-llm", "tensorrt_llm"):
            words[0] = "trtllm"
        if words[0] in REMOVED:
            raise AdaptiveSpecError(
                f"`adaptive-spec {words[0]}` was removed in 0.2: use {REMOVED[words[0]]}"
            )
        with_installed_commands()(words)
    except AdaptiveSpecError as error:
        print_text(f"error: {error}", error=True)
        sys.exit(2)
    except MemoryError:
        print_text("error: this takes more memory than there is", error=True)
        sys.exit(2)


@functools.cache
def with_installed_commands() -> typer.Typer:
    """Return the app with the commands of other parts and packages, found by entry point."""
    found, clashes = installed_parts(COMMANDS)
    own = {each.name or getattr(each.callback, "__name__", "") for each in app.registered_commands}
    for point in found.values():
        if point.name in own:
            clashes.append((point, __name__))
            continue
        try:
            command = point.load()
        except Exception as error:
            command = _broken_command(point.name, error)
        panel = _PANELS.get(point.name, EXTEND)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=point.name, rich_help_panel=panel)
        else:
            app.command(name=point.name, rich_help_panel=panel)(command)
    for point, kept in clashes:
        print_text(
            f"warning: command {point.name!r} of {point.value} is left out: {kept} has this name",
            error=True,
        )
    if _in_a_checkout():
        app.command(
            name="demo",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            add_help_option=False,
            rich_help_panel=SERVE,
        )(demo)
    return app


def _in_a_checkout() -> bool:
    from adaptive_spec.commands.demo import demo_script

    try:
        demo_script()
    except AdaptiveSpecError:
        return False
    return True


def _broken_command(name: str, error: Exception) -> Callable[[], None]:
    """Build a stand-in for a command that cannot be loaded; the other commands still work."""
    problem = f"command {name!r} cannot be loaded: {type(error).__name__}: {error}"

    def broken() -> None:
        raise AdaptiveSpecError(problem)

    broken.__doc__ = "Cannot be loaded."
    return broken


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        print(__version__)
        raise typer.Exit


@app.command(rich_help_panel=SERVE)
def doctor(
    json: Json = False,
    engine: Annotated[
        str | None,
        typer.Option(help="vllm, sglang or tensorrt-llm must be ready; else exit with 1."),
    ] = None,
    features: Annotated[
        bool, typer.Option("--features", help="Also list the engines' features and their rules.")
    ] = False,
    sglang_tree: Annotated[
        Path | None, typer.Option(help="Check this SGLang source tree instead of the environment.")
    ] = None,
    tensorrt_llm_tree: Annotated[
        Path | None,
        typer.Option(help="Check this TensorRT-LLM source tree instead of the environment."),
    ] = None,
    vllm_tree: Annotated[
        Path | None, typer.Option(help="Check this vLLM source tree instead of the environment.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Say what will be steered under this command, compose file, manifest, unit or "
            "Dockerfile, or a file with it. Needs vLLM installed."
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Let --recipe keep options that name code, such as --trust-remote-code."
        ),
    ] = False,
) -> None:
    """Report what is installed, supported and switched on; the last line is the verdict.

    Example, in a Dockerfile: RUN adaptive-spec doctor --engine vllm
    """
    from adaptive_spec.commands.doctor import examine, recipe_report, source_report, verdict

    trees = {"sglang": sglang_tree, "tensorrt-llm": tensorrt_llm_tree, "vllm": vllm_tree}
    sources = [source_report(engine, tree) for engine, tree in trees.items() if tree is not None]
    if len(sources) > 1:
        raise AdaptiveSpecError("doctor checks one source tree at a time; name only one")
    for source in sources:
        if json:
            print_json(source)
        else:
            _print_source(source)
    if sources:
        raise typer.Exit(1 if any(source.problems for source in sources) else 0)
    if recipe is not None:
        judged = recipe_report(_text_of(recipe), trust=trust)
        if json:
            print_json(judged)
        else:
            _print_table(("recipe", "answer"), judged.rows)
        raise typer.Exit(0 if judged.steered else 1)
    report = examine()
    said, ready = verdict(report, engine)
    if json:
        print_json(report)
    else:
        _print_report(report, features=features)
        print_text(f"\n{said}")
    raise typer.Exit(0 if ready else 1)


@app.command(rich_help_panel=EXTEND)
def policies(
    json: Json = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Also list where the baselines' rules come from.")
    ] = False,
) -> None:
    """List the installed policies: those for a server, and baselines for the simulator."""
    from adaptive_spec.commands.doctor import installed_policies

    found = installed_policies()
    if json:
        print_json(found)
        return
    ours = [policy for policy in found if policy.distribution == _DISTRIBUTION]
    groups = {
        "for a server": [policy for policy in ours if not policy.source],
        "baseline": [policy for policy in ours if policy.source],
        "of another package": [policy for policy in found if policy not in ours],
    }
    for title, members in groups.items():
        shown = [
            (each.name, each.problem or each.summary, each.granularity, each.location)
            for each in members
        ]
        columns = (title, "what it does", "steers", "class")
        width = len(columns) - (title != "of another package")
        if shown:
            _print_table(columns[:width], [row[:width] for row in shown])
    if sources:
        rows = [(each.name, each.source) for each in groups["baseline"]]
        _print_table(("baseline", "source"), rows)
    print("L0: one K per batch")
    print("L1: K per request at verification")
    print("L2: draft depth as well")
    print("baselines: for the simulator; --sources names origins")


@app.command(rich_help_panel=SERVE)
def config(
    file: Annotated[
        str,
        typer.Argument(help="File as in ADAPTIVE_SPEC_CONFIG, YAML or JSON, or the JSON itself."),
    ],
    json: Json = False,
) -> None:
    """Check a configuration and print all of its values, defaults included.

    Example: adaptive-spec config '{"adaptive_spec": {"mode": "shadow"}}'
    """
    from adaptive_spec.operation.output_file import unwritable
    from adaptive_spec.policy import configured_policy

    loaded = _configuration(file)
    configured_policy(loaded)  # building the policy validates its options
    for sentence in unwritable(loaded):
        print_text(f"warning: {sentence}", error=True)
    if json:
        print_json(loaded)
    else:
        print_text(msgspec.yaml.encode(loaded).decode().rstrip("\n"))


@app.command(name="new-policy", rich_help_panel=EXTEND)
def new_policy(
    name: Annotated[str, typer.Argument(help="Name of the policy, such as my_policy.")],
    folder: Annotated[Path, typer.Option(help="Folder to make the package in.")] = Path(),
) -> None:
    """Make a package with a policy, its entry point and its test.

    Example: adaptive-spec new-policy my_policy
    """
    from adaptive_spec.commands.new_policy import make_package

    files = make_package(name, folder)
    for path in files:
        print(path)
    root = files[0].parent
    print(f"next: pip install -e {root} && pytest {root}")
    print(f"then: adaptive-spec replay --policy {name} --policy goodput --load closed:16")


def demo(context: typer.Context) -> None:
    """Show a real vLLM server on this CPU whose K follows the load; some two minutes."""
    from adaptive_spec.commands.demo import run_demo

    run_demo(context.args)


def _configuration(text: str) -> Config:
    """Return the configuration of a file, or the one that the text itself is."""
    if not text.lstrip().startswith("{"):
        return load_config_file(text)
    try:
        value = decode_json(text.encode())
    except ValueError as error:
        raise AdaptiveSpecError(f"argument: not valid JSON: {error}") from error
    if isinstance(value, dict):
        for sentence in mistaken_names(value, {}):
            print(f"warning: {sentence}", file=sys.stderr)
        if KEY in value:  # beside it stand keys of other plugins
            return parse_config(value[KEY], source=f"argument: `{KEY}`")
    return parse_config(value, source="argument")


def _text_of(recipe: str) -> str:
    """Return the content of the file that is named, or the command itself."""
    path = Path(recipe)
    is_path = path.suffix in (".service", ".sh", ".yaml", ".yml") or recipe.startswith(("/", "."))
    if len(recipe.split()) != 1 or not (is_path or path.is_file()):
        return recipe
    try:
        return read_small_file(path, 1 << 20).decode()
    except OSError as error:
        raise AdaptiveSpecError(f"--recipe {recipe}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise AdaptiveSpecError(f"--recipe {recipe}: no text") from None


def _print_report(report: Report, *, features: bool) -> None:
    rows = [
        ("adaptive-spec", report.version, ""),
        ("python", report.python, ""),
        ("numpy", report.numpy, ""),
        ("numba", report.numba or "not installed", "compiles decisions"),
    ]
    rows += [
        (
            engine.engine,
            engine.installed_version or "–",
            engine.detail if engine.installed_version else engine.detail or "not installed",
        )
        for engine in report.engines
    ]
    _print_table(("component", "version", ""), rows)
    print()
    _print_table(("switched on by", "state"), _switches(report))
    print()
    print(f"{len(report.policies)} policies: `adaptive-spec policies` lists them")
    for engine in report.engines:
        if features and engine.installed_version and engine.interplay:
            print()
            _print_table(
                (f"with {engine.engine}", "", "rule"),
                [(row.feature, row.support, row.rule) for row in engine.interplay],
            )
    for problem in report.problems:
        print_text(f"\nproblem: {problem}")


def _print_source(report: SourceReport) -> None:
    _print_table(("route", "relied on", "file", "found"), report.rows)
    for route, state in report.routes.items():
        print_text(f"{route}: {state}")


def _switches(report: Report) -> list[tuple[str, str]]:
    configured = report.configured
    if not configured.source:
        state = "not set"
    elif configured.problem:
        state = f"{configured.source}: not usable"
    else:
        state = f"{configured.source}: mode {configured.mode}, policy {configured.policy}"
    engines = [
        (engine.engine, engine.enabled) for engine in report.engines if engine.installed_version
    ]
    return [("ADAPTIVE_SPEC_CONFIG", state), *engines]


def _print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)
