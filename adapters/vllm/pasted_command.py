"""The `vllm serve` in what people paste: shell lines, `docker run`, compose and Kubernetes files.

Nothing is run. Quotes, variables that the text itself sets, `env`, `export` and redirections mean
what they mean to a shell; what cannot be known is named.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from adaptive_spec.errors import ConfigError

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_ENDS = frozenset(";&|\n()")
_IN_FRONT = frozenset({"command", "env", "exec", "nohup", "sudo", "time"})
_WITH_VALUE = frozenset({"-u", "-g", "-C", "--unset", "--chdir", "--user"})
"""Options of `env` and `sudo` that take a word."""
_SKIPPED = frozenset({"cd", "echo", "mkdir", "pip", "set", "sleep", "source", ".", "ulimit", "uv"})
_CONTAINER = frozenset({"docker", "nerdctl", "podman"})
_FLAGS = frozenset({"-d", "-i", "-t", "-it", "-ti", "-P", "--detach", "--init", "--privileged"}) | {
    "--rm",
    "--interactive",
    "--tty",
}
"""Options of `docker run` without a value."""
_MODULE = "vllm.entrypoints.openai.api_server"
_OTHERS = {
    "sglang": "docs/sglang.md",
    "trtllm": "docs/tensorrt_llm.md",
    "dynamo": "docs/quick_start.md",
}
"""Other servers, by the beginning of their program or module, and the page to read."""


class Pasted(NamedTuple):
    """A server's command.

    Attributes:
        words: arguments of `vllm serve`.
        environment: variables that the text sets for it.
    """

    words: list[str]
    environment: dict[str, str]


def read_pasted(text: str) -> Pasted:
    """Return the one `vllm serve` of a text, or the text's own words if it names no server.

    Raises ConfigError, one line.
    """
    found = list(_of_containers(text)) or list(_of_shell(text))
    if not found:
        raise ConfigError("--recipe: no server's command in it: give what begins with `vllm serve`")
    if len(found) > 1:
        raise ConfigError(f"--recipe: {len(found)} servers in it: give one of them")
    return found[0]


def _of_containers(text: str) -> Iterator[Pasted]:
    """Servers of a compose file or a Kubernetes object; none of other text."""
    if not re.search(r"^\s*(-\s*)?(image|args|command)\s*:", text, re.MULTILINE):
        return
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--recipe: no YAML that can be read: {reason}") from None
    for container in _containers(documents):
        words = [*_listed(container.get("command")), *_listed(container.get("args"))]
        environment = dict(_environment(container.get("environment", container.get("env"))))
        if words:
            yield from _of_words(words, environment, image=True)


def _containers(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping):
        if node.keys() & {"args", "command"}:
            yield node
            return
        for each in node.values():
            yield from _containers(each)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for each in node:
            yield from _containers(each)


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return shlex.split(value) if isinstance(value, str) else [str(each) for each in value]


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    """Variables as a mapping, as NAME=VALUE lines, or as Kubernetes names and values."""
    if isinstance(value, Mapping):
        yield from ((str(name), str(each)) for name, each in value.items())
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping):
            if "value" in each:
                yield str(each.get("name")), str(each["value"])
        elif match := _ASSIGNMENT.fullmatch(str(each)):
            yield match[1], match[2]


def _of_shell(text: str) -> Iterator[Pasted]:
    variables: dict[str, str] = {}
    exported: dict[str, str] = {}
    commands = list(_commands(_quote_bare_json(text), variables))
    for words in commands:
        if words[0] == "export":
            exported |= dict(map(_assigned, filter(_ASSIGNMENT.fullmatch, words[1:])))
            continue
        yield from _of_words(words, dict(exported), alone=len(commands) == 1)


def _of_words(
    words: list[str], environment: dict[str, str], *, alone: bool = False, image: bool = False
) -> Iterator[Pasted]:
    """The server of one command, if it starts one.

    Args:
        words: of the command.
        environment: variables in force.
        alone: there is no other command: words that name no server are a server's arguments.
        image: likewise, since an image of vLLM's starts the server.
    """
    words = list(words)
    while words and (words[0] in _IN_FRONT or _ASSIGNMENT.fullmatch(words[0])):
        word = words.pop(0)
        if word in ("env", "sudo"):
            while words and words[0].startswith("-"):
                option = words.pop(0)
                if option in _WITH_VALUE and words:
                    words.pop(0)
        elif word not in _IN_FRONT:
            environment |= dict([_assigned(word)])
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if program in _CONTAINER:
        yield from _of_docker(words, environment)
        return
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    for name, page in _OTHERS.items():
        if program.startswith(name) or module.startswith(name):
            raise ConfigError(
                f"--recipe: {module or program} is no command of vLLM's, and only those are "
                f"judged; see {page}"
            )
    if module == _MODULE:
        yield Pasted(words[words.index("-m") + 2 :], environment)
    elif program == "vllm" and "serve" in words:
        yield Pasted(words[words.index("serve") + 1 :], environment)
    elif program == "serve":
        yield Pasted(words[1:], environment)
    elif image or (alone and program not in _SKIPPED):
        yield Pasted(words, environment)


def _of_docker(words: list[str], environment: dict[str, str]) -> Iterator[Pasted]:
    """What `docker run` hands to the image."""
    if "run" not in words:
        return
    rest = words[words.index("run") + 1 :]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        name, equals, value = option.partition("=")
        if name not in _FLAGS and not equals:
            value = rest.pop(0) if rest else ""
        if name in ("-e", "--env") and (match := _ASSIGNMENT.fullmatch(value)):
            environment[match[1]] = match[2]
    yield from _of_words(rest[1:], environment, image=True)


def _assigned(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _quote_bare_json(text: str) -> str:
    """Put quotes around JSON objects that stand without: a shell would take their own away."""
    parts, at = [], 0
    for match in re.finditer(r'(?<=[=\s])\{\s*"', text):
        start = match.start()
        if start < at or _is_quoted(text, start):
            continue
        try:
            _, length = json.JSONDecoder().raw_decode(text[start:])
        except ValueError:
            continue
        parts += [text[at:start], shlex.quote(text[start : start + length])]
        at = start + length
    return "".join([*parts, text[at:]])


def _is_quoted(text: str, place: int) -> bool:
    quote = ""
    for character in text[:place]:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return bool(quote)


def _commands(text: str, variables: dict[str, str]) -> Iterator[list[str]]:
    """Words of each simple command; assignments on their own go into `variables`.

    Raises ConfigError for an open quote or an unknown variable.
    """
    for raw in _split(text.replace("\\\r\n", " ").replace("\\\n", " ")):
        words = [_expanded(word, variables) for word in _without_redirections(raw)]
        if not words:
            continue
        if all(_ASSIGNMENT.fullmatch(word) for word in words):
            variables.update(map(_assigned, words))
            continue
        yield words


def _split(text: str) -> Iterator[list[str]]:
    """Words of each command, quotes still on."""
    words: list[str] = []
    word, quote, at = "", "", 0
    while at < len(text):
        character = text[at]
        at += 1
        if quote:
            word += character
            if character == "\\" and quote == '"' and at < len(text):
                word += text[at]
                at += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            word, quote = word + character, character
        elif character == "\\" and at < len(text):
            word += character + text[at]
            at += 1
        elif character == "#" and not word:
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif character == "&" and (word.endswith(">") or text[at : at + 1] == ">"):
            word += character  # 2>&1, &>
        elif character in _ENDS or character.isspace():
            words += [word] if word else []
            word = ""
            if character in _ENDS:
                yield words
                words = []
        else:
            word += character
    if quote:
        raise ConfigError(f"--recipe: a quote {quote} is not closed; paste the whole command")
    yield [*words, word] if word else words


def _without_redirections(words: Sequence[str]) -> Iterator[str]:
    target = False
    for word in words:
        match = re.match(r"(\d|&)?(>>?|<)", word)
        if target:
            target = False
        elif match is not None:
            target = match.end() == len(word)  # else the target follows at once
        else:
            yield word


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    """The word without its quotes, variables replaced where a shell would."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        found = variables.get(name, os.environ.get(name))
        if found is None:
            raise ConfigError(f"--recipe: the text does not say what ${name} is; replace it")
        return found

    parts = re.findall(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?:\\.|[^'\"\\])+", word, re.DOTALL)
    found = ""
    for part in parts:
        if part[0] == "'":
            found += part[1:-1]
        elif part[0] == '"':
            found += re.sub(r'\\(["\\$`])', r"\1", _VARIABLE.sub(value, part[1:-1]))
        else:
            found += re.sub(r"\\(.)", r"\1", _VARIABLE.sub(value, part))
    return found
