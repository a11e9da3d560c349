"""Options of a command, from the struct that holds them; and options that several commands have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer

Options = TypeVar("Options", bound=msgspec.Struct)

JsonForTable = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ServerKey = Annotated[str, typer.Option(help="API key. Default: $VLLM_API_KEY.")]


def with_options(
    options: type[Options],
) -> Callable[[Callable[[typer.Context, Options], None]], Callable[..., None]]:
    """Give a command one option for each field of a struct, and the command the struct.

    Args:
        options: whose fields are `Annotated[type, typer.Option(help=...)]`, with a default.
    """

    def decorate(command: Callable[[typer.Context, Options], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(context: typer.Context, **given: Any) -> None:
            command(context, options(**given))

        hints = get_type_hints(options, include_extras=True)
        kind = inspect.Parameter.KEYWORD_ONLY
        defaults = {field.name: field.default for field in msgspec.structs.fields(options)}
        parameters = [
            inspect.Parameter("context", kind, annotation=typer.Context),
            *(
                inspect.Parameter(name, kind, default=default, annotation=hints[name])
                for name, default in defaults.items()
            ),
        ]
        # typer reads both: the order and defaults here, the types there.
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
