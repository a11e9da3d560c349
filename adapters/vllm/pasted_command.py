"""The `vllm serve` in what people paste, in every form that starts a server.

Forms: shell lines, `docker run`, Dockerfiles, compose files, Kubernetes objects, values of the
charts production-stack and llm-d, systemd units. Nothing is run. Quotes and variables that the text
itself sets mean what they mean to a shell; what cannot be known is named.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from adaptive_spec.adapters.vllm.shell_text import (
    ASSIGNMENT,
    assigned,
    commands,
    unknown_variable,
    with_variables,
)
from adaptive_spec.bounded_read import decode_yaml_documents
from adaptive_spec.errors import ConfigError

_MOST_CHARACTERS = 1 << 17
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SHELLS = frozenset({"ash", "bash", "dash", "sh", "zsh"})
_SKIPPED = frozenset({"cd", "echo", "mkdir", "pip", "set", "sleep", "source", ".", "ulimit", "uv"})
_CONTAINER = frozenset({"docker", "nerdctl", "podman"})
_FLAGS = re.compile(r"-[ditP]+|--(detach|init|interactive|privileged|read-only|rm|tty)")
"""Options of `docker run` without a value."""
_MODULE = "vllm.entrypoints.openai.api_server"
_OTHERS = {
    "dynamo": "docs/quick_start.md",
    "sglang": "docs/sglang.md",
    "tensorrt_llm": "docs/tensorrt_llm.md",
    "trtllm-serve": "docs/tensorrt_llm.md",
}
"""Other servers, by program or the package of their module, and the page to read."""
TAKEN_OVER = frozenset(
    {
        "ADAPTIVE_SPEC_CONFIG",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_PLUGINS",
        "VLLM_USE_V1",
        "VLLM_USE_V2_MODEL_RUNNER",
    }
)
"""Variables that decide what is steered. No other variable of a text is set: it may name hosts that
would get the reader's token, or code."""
_WITHOUT_EFFECT = frozenset({"--api-key", "--host", "--port", "--served-model-name"})
"""Options whose value decides nothing here, so that it need not be known."""
_NAMED, _OF_VLLMS_IMAGE, _OF_AN_IMAGE = range(3)
"""How sure it is that a command is vLLM's."""


class Pasted(NamedTuple):
    """A server's command.

    Attributes:
        words: arguments of `vllm serve`.
        environment: variables that the text sets for the server and that are taken over.
        ignored: names of the other variables that the text sets.
    """

    words: list[str]
    environment: dict[str, str]
    ignored: tuple[str, ...] = ()


class _Found(NamedTuple):
    words: list[str]
    environment: dict[str, str]
    doubt: int


def read_pasted(text: str) -> Pasted:
    """Return the one `vllm serve` of a text, or the text's own words if it names no server.

    Raises ConfigError, one line.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"--recipe: more than {_MOST_CHARACTERS:,} characters")
    text = re.sub(r"^[ \t]*```.*$", "", text.replace("\u00a0", " "), flags=re.MULTILINE)
    try:
        found = list(_servers(text))
    except RecursionError:
        raise ConfigError("--recipe: commands within commands without end") from None
    least = min((each.doubt for each in found), default=0)
    found = [each for each in found if each.doubt == least]
    if not found:
        raise ConfigError("--recipe: no server's command in it: give what begins with `vllm serve`")
    if len(found) > 1:
        raise ConfigError(f"--recipe: {len(found)} servers in it: give one of them")
    variables = found[0].environment
    words = list(_without_unknown(found[0].words))
    environment = {name: variables[name] for name in variables if name in TAKEN_OVER}
    for word in (*words, *environment.values()):
        if name := unknown_variable(word):
            raise ConfigError(f"--recipe: the text does not say what ${name} is; replace it")
        if word in ("...", "…"):
            raise ConfigError(f"--recipe: {word} is in place of options; paste the whole command")
        if CONTROL.search(word):
            raise ConfigError("--recipe: a control character in it; paste plain text")
        if any(quote in word for quote in "“”‘’"):
            raise ConfigError(
                "--recipe: typographic quotes (“ ” ‘ ’) in it, which no shell and no vLLM takes "
                "for quotes: write \" and '"
            )
    return Pasted(words, environment, tuple(sorted(variables.keys() - TAKEN_OVER)))


def _without_unknown(words: Iterable[str]) -> Iterator[str]:
    """Leave out options without effect whose value is unknown."""
    option = ""
    for word in words:
        if option:
            yield from () if unknown_variable(word) else (option, word)
            option = ""
        elif word in _WITHOUT_EFFECT:
            option = word
        elif not (word.partition("=")[0] in _WITHOUT_EFFECT and unknown_variable(word)):
            yield word
    if option:
        yield option


def _servers(text: str) -> Iterator[_Found]:
    if re.search(r"^(ENTRYPOINT|CMD)\s", text, re.MULTILINE):
        yield from _of_dockerfile(text)
    elif re.search(r"^ExecStart\s*=", text, re.MULTILINE):
        yield from _of_unit(text)
    elif re.search(
        r"^[ \t]*(-[ \t]*)?(apiVersion|image|args|command|modelSpec)[ \t]*:", text, re.MULTILINE
    ):
        try:
            documents = decode_yaml_documents(text.encode(errors="replace"))
        except ValueError as error:
            raise ConfigError(f"--recipe: no YAML that can be read: {error}") from None
        for document in documents:
            yield from _of_node(document)
    else:
        yield from _of_shell(text, {}, alone=True)


def _of_node(node: Any, *, compose: bool = False) -> Iterator[_Found]:
    """Servers of a compose file, a Kubernetes object or a chart's values."""
    if isinstance(node, list):
        for each in node:
            yield from _of_node(each)
    elif not isinstance(node, dict):
        return
    elif "modelSpec" in node:
        for each in _list(node["modelSpec"]):
            yield from _of_production_stack(_mapping(each))
    elif "modelArtifacts" in node:
        # With prefill apart, speculation is up to the instances that decode.
        pod = _mapping(node.get("decode")) or _mapping(node.get("prefill"))
        for each in _list(pod.get("containers")):
            yield from _of_llm_d(_mapping(each), _mapping(node["modelArtifacts"]), pod)
    elif node.keys() & {"args", "command", "entrypoint"}:
        yield from _of_container(node, compose=compose or isinstance(node.get("command"), str))
    else:
        for name, each in node.items():
            services = name == "services" and isinstance(each, dict)
            for member in each.values() if services else (each,):
                yield from _of_node(member, compose=services)


def _of_container(container: Mapping[str, Any], *, compose: bool) -> Iterator[_Found]:
    variables = dict(_environment(container.get("environment", container.get("env"))))

    def known(text: str) -> str:
        """Replace compose's `${NAME}` (a shell's own is `$$NAME`), or Kubernetes' `$(NAME)`."""
        if compose:
            return "$".join(with_variables(part, {}) for part in text.split("$$"))
        return re.sub(
            r"\$\((\w+)\)", lambda match: with_variables(f"${{{match[1]}}}", variables), text
        )

    variables |= {name: known(value) for name, value in variables.items()}
    words = [
        known(word)
        for key in ("entrypoint", "command", "args")
        for word in _words(container.get(key))
    ]
    # A `command` of Kubernetes replaces the image's program, one of compose its arguments.
    if container.get("entrypoint" if compose else "command"):
        yield from _of_words(words, variables)
    elif words:
        vllms = "vllm" in str(container.get("image", "vllm"))
        doubt = _OF_VLLMS_IMAGE if vllms else _OF_AN_IMAGE
        yield from _of_words(words, variables, assumed=doubt)


def _of_production_stack(model: Mapping[str, Any]) -> Iterator[_Found]:
    config = _mapping(model.get("vllmConfig"))
    options = _options(
        {name: each for name, each in config.items() if name not in ("extraArgs", "v1")}
    )
    words = [str(model.get("modelURL", "")), *options, *_words(config.get("extraArgs"))]
    yield _Found(words, dict(_environment(model.get("env"))), _NAMED)


def _of_llm_d(
    container: Mapping[str, Any], artifacts: Mapping[str, Any], pod: Mapping[str, Any]
) -> Iterator[_Found]:
    if container.get("modelCommand") not in ("vllmServe", "imageDefault"):
        yield from _of_container(container, compose=False)
        return
    name = str(artifacts.get("name", ""))
    uri = re.sub(r"\{\{[^{}]*\}\}", lambda _: name, str(artifacts.get("uri", "")))
    model = uri.removeprefix("hf://") if uri.startswith("hf://") else name
    parallel = _mapping(pod.get("parallelism"))
    sizes = {f"{kind}ParallelSize": parallel[kind] for kind in ("tensor", "data") & parallel.keys()}
    words = [model, *_options(sizes), *_words(container.get("args"))]
    yield _Found(words, dict(_environment(container.get("env"))), _NAMED)


def _options(values: Mapping[str, Any]) -> Iterator[str]:
    """Options of vLLM's for a chart's values: maxModelLen: 8192 is --max-model-len 8192."""
    for name, value in values.items():
        option = re.sub("([A-Z])", r"-\1", str(name)).lower()
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        else:
            yield from (f"--{option}", str(value))


def _of_dockerfile(text: str) -> Iterator[_Found]:
    """Return the command that the last stage of a Dockerfile starts."""
    variables: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for line in re.sub(r"\\[ \t]*\n", " ", text).splitlines():
        instruction, _, value = line.strip().partition(" ")
        value = value.strip()
        if instruction in ("ARG", "ENV"):
            pair = ASSIGNMENT.match(value)
            words = _split(value) if pair else ["=".join(value.split(None, 1))]
            variables |= dict(
                assigned(with_variables(word, variables)) for word in words if "=" in word
            )
        elif instruction == "FROM":
            parts = {}
        elif instruction in ("ENTRYPOINT", "CMD"):
            try:
                parts[instruction] = [str(word) for word in json.loads(value)]
            except (ValueError, TypeError, RecursionError):
                parts[instruction] = ["sh", "-c", value]
    words = [*parts.get("ENTRYPOINT", ()), *parts.get("CMD", ())]
    assumed = None if "ENTRYPOINT" in parts else _OF_AN_IMAGE
    yield from _of_words(words, variables, assumed=assumed)


def _of_unit(text: str) -> Iterator[_Found]:
    """Return the command that a systemd unit starts."""
    lines = re.sub(r"\\[ \t]*\n", " ", text).splitlines()
    pairs = [(key.strip(), value) for key, equals, value in (x.partition("=") for x in lines)]
    variables: dict[str, str] = {}
    for key, value in pairs:
        if key == "Environment":
            variables |= dict(assigned(word) for word in _split(value) if "=" in word)
    for key, value in pairs:
        if key == "ExecStart":
            words = [
                with_variables(word, variables) for word in _split(value.strip().lstrip("-@:+!"))
            ]
            yield from _of_words(words, variables)


def _of_shell(
    text: str, environment: Mapping[str, str], *, alone: bool = False
) -> Iterator[_Found]:
    variables, exported = dict(environment), dict(environment)
    found = list(commands(text, variables))
    for words in found:
        if words[0] == "export":
            exported |= dict(map(assigned, filter(ASSIGNMENT.fullmatch, words[1:])))
            variables |= exported
            continue
        # Without any program the text is a server's arguments.
        bare = alone and len(found) == 1 and _program(words[0]) not in _SKIPPED | _CONTAINER
        yield from _of_words(words, exported, assumed=_OF_AN_IMAGE if bare else None)


def _of_words(
    words: list[str], environment: Mapping[str, str], *, assumed: int | None = None
) -> Iterator[_Found]:
    """The server that one command starts, whatever stands in front of it.

    Args:
        words: of the command.
        environment: variables in force.
        assumed: what the words are if they name no server: a server's own arguments; None: nothing.
    """

    def until(place: int) -> dict[str, str]:
        return {**environment, **dict(map(assigned, filter(ASSIGNMENT.fullmatch, words[:place])))}

    for place, word in enumerate(words):
        program, following = _program(word), words[place + 1 : place + 3]
        if program in _CONTAINER and following[:1] == ["run"]:
            yield from _of_docker(words[place + 2 :], until(place))
        elif (program, *following[:1]) == ("vllm", "serve") or following[:1] == [_MODULE]:
            yield _Found(words[place + 2 :], until(place), _NAMED)
        elif program in _SHELLS and len(following) == 2 and re.fullmatch("-[a-z]*c", following[0]):
            yield from _of_shell(following[1], until(place))
        elif page := _page_of_other(word, following):
            shown = following[0] if word == "-m" else program
            raise ConfigError(
                f"--recipe: {shown} is no command of vLLM's, and only those are judged; see {page}"
            )
        else:
            continue
        return
    if assumed is not None:
        start = next((i for i, word in enumerate(words) if not ASSIGNMENT.fullmatch(word)), 0)
        rest = words[start + (words[start : start + 1] == ["serve"]) :]
        if rest:
            yield _Found(rest, until(start), assumed)


def _page_of_other(word: str, following: list[str]) -> str:
    """The page about another server that a word starts; empty if it starts none."""
    if word == "-m":
        return _OTHERS.get((following or [""])[0].partition(".")[0], "")
    program = _program(word)
    serves = following[:1] in (["run"], ["serve"]) or program == "trtllm-serve"
    return _OTHERS.get(program, "") if serves else ""


def _of_docker(words: list[str], environment: dict[str, str]) -> Iterator[_Found]:
    """Return the arguments that `docker run` hands to the image."""
    program: list[str] = []
    rest = iter(words)
    image = ""
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            image = word
            break
        if not equals and not _FLAGS.fullmatch(name):
            value = next(rest, "")
        if name in ("-e", "--env") and ASSIGNMENT.fullmatch(value):
            environment |= dict([assigned(value)])
        elif name == "--entrypoint":
            program = [value]
    assumed = None if program else _OF_VLLMS_IMAGE if "vllm" in image else _OF_AN_IMAGE
    yield from _of_words([*program, *rest], environment, assumed=assumed)


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    """Variables as a mapping, as NAME=VALUE lines, or as Kubernetes names and values."""
    if isinstance(value, dict):
        yield from ((str(name), _text(each)) for name, each in value.items())
    for each in _list(value):
        if isinstance(each, dict):
            if "value" in each:
                yield str(each.get("name")), _text(each["value"])
        elif match := ASSIGNMENT.fullmatch(str(each)):
            yield match[1], match[2]


def _words(value: Any) -> list[str]:
    """Words of a command as YAML has them: a list, or one text."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return [] if value is None else _split(_text(value))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--recipe: {error}; paste the whole command") from None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
