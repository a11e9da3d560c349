"""Whether decode graphs of vLLM's attention backends replay batches whose K differ, by version.

Read from the text of each backend's metadata builder, as its class states it, because a CPU cannot
import most of them: `_cudagraph_support` is ALWAYS, or the class has a
`get_varlen_cudagraph_max_query_len` of its own (vLLM's
`get_varlen_cudagraph_unsupported_backend` asks for these two).
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SUPPORT, METHOD = "_cudagraph_support", "get_varlen_cudagraph_max_query_len"
OWN_DECODE_PATH = "specialized_decode"
"""Folder of a model whose decode graphs are its own and take one K."""


class UnreadError(ValueError):
    """A builder's class or statement is not where it was; the message says which."""


def replays_mixed(package: Path, builder: dict[str, Any]) -> bool:
    """Return whether graphs of a builder replay batches of mixed K.

    Args:
        package: the folder `vllm` of a wheel.
        builder: `file` under it, `class`, and where they matter `inherits`, a list of further
            builders in whose class the statement may stand, and `flash_attention`, the version
            that runs.

    Raises UnreadError.
    """
    file = package / builder["file"]
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except OSError as error:
        raise UnreadError(f"{file}: {error}") from None
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    name: str | None = builder["class"]
    if name not in classes:
        raise UnreadError(f"{file} has no class {name}")
    while name is not None:
        for node in classes[name].body:
            if isinstance(node, ast.FunctionDef) and node.name == METHOD:
                return True
        for node in classes[name].body:
            if SUPPORT in _assigned(node):
                return _stated(node, builder) == "ALWAYS"
        bases = [_name_of(base) for base in classes[name].bases]
        name = next((base for base in bases if base in classes), None)
    for further in builder.get("inherits", ()):
        return replays_mixed(package, further)
    raise UnreadError(f"{file}: {builder['class']} states no {SUPPORT}")


def has_own_decode_path(package: Path, model: str | None) -> bool:
    """Return whether a folder of `vllm/models` has a decode path of its own for NVIDIA GPUs."""
    return model is not None and (package / "models" / model / "nvidia" / OWN_DECODE_PATH).is_dir()


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _stated(node: ast.stmt, builder: dict[str, Any]) -> str:
    """The value of a class attribute, which may depend on FlashAttention's version."""
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert node.value is not None
    known = {
        "AttentionCGSupport": SimpleNamespace(
            **{name: name for name in ("ALWAYS", "NEVER", "UNIFORM_BATCH")},
            UNIFORM_SINGLE_TOKEN_DECODE="UNIFORM_SINGLE_TOKEN_DECODE",
        ),
        "get_flash_attn_version": lambda: builder.get("flash_attention"),
        "current_platform": SimpleNamespace(is_xpu=lambda: False),
        "__builtins__": {},
    }
    try:
        return str(eval(compile(ast.Expression(node.value), builder["file"], "eval"), known))
    except Exception as error:
        raise UnreadError(f"{builder['class']}: {ast.unparse(node)}: {error!r}") from error


def _name_of(base: ast.expr) -> str:
    """The class's name of a base such as `module.Base[Metadata]`."""
    if isinstance(base, ast.Subscript):
        return _name_of(base.value)
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
