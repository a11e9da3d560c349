"""`adaptive-spec trtllm`: the start-up hook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_spec.adapters.tensorrt_llm import install
from adaptive_spec.adapters.tensorrt_llm.switch import VARIABLE

app = typer.Typer(help="TensorRT-LLM: write or delete the start-up hook.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option("--site-packages", help="Another environment's site-packages folder."),
]


@app.command("install-hook")
def install_hook(site_packages: Folder = None) -> None:
    """Make TensorRT-LLM workers of this environment load adaptive-spec where it is on."""
    for file in install.install_hook(site_packages):
        print(f"wrote {file}")
    print(f"switch on with {VARIABLE}=1 in front of trtllm-serve; unset, the hook does nothing")


@app.command("remove-hook")
def remove_hook(site_packages: Folder = None) -> None:
    """Delete the files of install-hook."""
    removed = install.remove_hook(site_packages)
    for file in removed:
        print(f"deleted {file}")
    if not removed:
        print("no hook is installed")


@app.command("status")
def status(site_packages: Folder = None) -> None:
    """Say whether the hook is installed."""
    state = install.hook_state(site_packages)
    if not state.installed:
        print(f"not installed in {state.folder}")
    elif state.current:
        print(f"installed in {state.folder}")
    else:
        print(f"installed in {state.folder}, of another version: run install-hook again")
