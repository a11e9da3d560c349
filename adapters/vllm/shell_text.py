"""Words of a shell's text: quotes, comments, variables, redirections. Nothing is run."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from adaptive_spec.errors import ConfigError

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-=?+])([^{}]*(?:\$\{[^{}]*\}[^{}]*)*)|([^{}]*))\})"
)
_ENDS = frozenset(";&|\n()")
_OF_THE_READER = re.compile(r"HOME|PWD|USER|[A-Z_]*MODEL[A-Z_]*")
"""Variables that may come from the reader's environment: no key, no token."""
_UNKNOWN = re.compile("\ufdd0([^\ufdd1]*)\ufdd1")
"""Stands in a word in place of an unknown variable."""
_MOST_CHARACTERS = 1 << 12
"""Most characters that variables add to a text: each may consist of others."""


def unknown_variable(word: str) -> str:
    """Return the first variable of a word that nothing defines; empty if there is none."""
    found = _UNKNOWN.search(word)
    return found[1] if found else ""


def assigned(word: str) -> tuple[str, str]:
    """Split NAME=VALUE."""
    name, _, value = word.partition("=")
    return name, value


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with values in place of `$NAME`, `${NAME}`, `${NAME:-DEFAULT}` and so on.

    Raises ConfigError where the values are too long.
    """
    room = _MOST_CHARACTERS

    def value(match: re.Match[str]) -> str:
        nonlocal room
        found = replacement(match)
        room -= len(found)
        if room < 0:
            raise ConfigError(
                f"--recipe: variables stand for more than {_MOST_CHARACTERS:,} characters"
            )
        return found

    def replacement(match: re.Match[str]) -> str:
        name, operator, other = match[1] or match[2], match[3] or "", match[4] or ""
        found = None if match[5] else variables.get(name)  # an array, a pattern
        if found is None and _OF_THE_READER.fullmatch(name):
            found = os.environ.get(name)
        if operator.endswith("+"):
            return with_variables(other, variables) if found else ""
        if found or (found is not None and not operator.startswith(":")):
            return found
        if operator.endswith(("-", "=")):
            return with_variables(other, variables)
        return f"\ufdd0{name}\ufdd1"

    return _VARIABLE.sub(value, text)


def commands(text: str, variables: dict[str, str]) -> Iterator[list[str]]:
    """Yield the words of each simple command; assignments on their own go into `variables`.

    Raises ConfigError for an open quote.
    """
    text = "\n".join(_without_documents(text.replace("\r\n", "\n")))
    text = re.sub(r"^[ \t]*\$[ \t]+", "", text.replace("\\\n", " "), flags=re.MULTILINE)  # prompts
    for raw in _split(_quote_bare_json(text)):
        words = [part for word in _without_redirections(raw) for part in _expanded(word, variables)]
        if not words:
            continue
        if all(ASSIGNMENT.fullmatch(word) for word in words):
            variables.update(map(assigned, words))
            continue
        yield words


def _without_documents(text: str) -> Iterator[str]:
    """Lines of a text without those of its here-documents."""
    end = ""
    for line in text.split("\n"):
        if end:
            end = "" if line.strip() == end else end
        else:
            yield line
            match = re.search(r"(?<!<)<<-?\s*(['\"]?)(\w+)\1(?![\w<])", line)
            end = match[2] if match else ""


def _quote_bare_json(text: str) -> str:
    """Put quotes around JSON objects that stand without: a shell would take their own away."""
    decoder = json.JSONDecoder()
    parts, at, seen, quote = [], 0, 0, ""
    for match in re.finditer(r'(?<=[=\s])\{\s*"', text):
        start = match.start()
        for character in text[seen:start]:
            if quote:
                quote = "" if character == quote else quote
            elif character in "'\"":
                quote = character
        seen = start
        if start < at or quote:
            continue
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        parts += [text[at:start], shlex.quote(text[start:end])]
        at = seen = end
    return "".join([*parts, text[at:]])


def _split(text: str) -> Iterator[list[str]]:
    """Words of each command, quotes still on."""
    words: list[str] = []
    word, quote, at = "", "", 0
    while at < len(text):
        character = text[at]
        at += 1
        if quote != "'" and (character == "`" or text[at - 1 : at + 1] == "$("):
            end = text.find("`" if character == "`" else ")", at)
            at = len(text) if end < 0 else end + 1
            word += "\ufdd0(...)\ufdd1"  # what a command prints
        elif quote:
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
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
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
        match = re.match(r"(\d|&)?(>>?|<<?<?)", word)
        if target:
            target = False
        elif match is not None:
            target = match.end() == len(word)  # else the target follows at once
        else:
            yield word


def _expanded(word: str, variables: Mapping[str, str]) -> list[str]:
    """The word without its quotes, variables replaced where a shell would; a bare one is split."""
    if _VARIABLE.fullmatch(word):
        return with_variables(word, variables).split()
    parts = re.findall(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?:\\.|[^'\"\\])+", word, re.DOTALL)
    found = ""
    for part in parts:
        if part[0] == "'":
            found += part[1:-1]
        elif part[0] == '"':
            found += re.sub(r'\\(["\\$`])', r"\1", with_variables(part[1:-1], variables))
        else:
            found += re.sub(r"\\(.)", r"\1", with_variables(part, variables))
    return [found]
