"""Finds command lines of `logbroker` in pages and checks their commands and options without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from logbroker.cli.main import cli

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*?)\n.*?^\s*\2$", re.DOTALL | re.MULTILINE)
_DESCRIPTOR = re.compile(r"(?<![\w\"'])(?:\d|&)?>(?:&\d|>)?|<(?!<)")
_ENDS = set("();<>|&\n") | {"&&", "||", ";;", "|&", "(", ")", "$("}
_PLACEHOLDER = re.compile(r"\.\.\.|[\[\]|<>{}]|[A-Z][A-Z.:=-]*")


def in_script(text: str) -> Iterator[list[str]]:
    """Yield the words behind `logbroker`, for each call in a shell script."""
    text = _HEREDOC.sub(r"\3", text.replace("\\\n", " "))
    for line in _joined(text):
        words = shlex.shlex(_DESCRIPTOR.sub(" > ", line), posix=True, punctuation_chars="();<>|&")
        words.whitespace_split = True
        call: list[str] | None = None
        for word in words:
            if set(word) <= set("();<>|&"):
                if call is not None:
                    yield call
                call = None
            elif call is not None:
                call.append(word)
            elif word.strip("`$") == "logbroker":
                call = []
        if call is not None:
            yield call


def _joined(text: str) -> Iterator[str]:
    """Yield lines; lines inside one pair of quotes are joined."""
    whole = ""
    for line in text.split("\n"):
        whole = f"{whole}\n{line}" if whole else line
        try:
            shlex.split(whole, comments=True)
        except ValueError:
            continue
        yield whole
        whole = ""
    if whole:
        raise ValueError(f"a quote is not closed: {whole}")


def fault_of_call(words: list[str]) -> str | None:
    """Return the fault of a complete command line; None where it parses."""
    command, names, rest = _resolve(words)
    if isinstance(command, str):
        return command
    if isinstance(command, click.Group):
        return None if not rest or rest == ["--help"] or rest == ["--version"] else f"no command {rest[0]!r}"
    context = click.Context(command, info_name=" ".join(names))
    try:
        values, _, _ = command.make_parser(context).parse_args(list(rest))
        if "help" in values:
            return None
        for parameter in command.params:
            given = values.get(parameter.name or "")
            if parameter.required and not (isinstance(given, str | tuple) and given):
                return f"{parameter.get_error_hint(context)} is missing"
            for value in given if isinstance(given, list | tuple) else [given]:
                if (
                    isinstance(value, str)
                    and "$" not in value
                    and isinstance(parameter.type, click.Choice | click.IntRange)
                ):
                    parameter.type(value, parameter, context)
        if unknown := [word for word in context.args if word]:
            return f"one argument too many: {unknown[0]}"
    except click.ClickException as error:
        return error.format_message()
    return None


def fault_of_mention(text: str) -> str | None:
    """Return the fault of a command line within prose, where arguments may be missing; None where its names exist."""
    words = text.split()[1:]
    plain = [word for word in words if word.startswith("-") or not _PLACEHOLDER.fullmatch(word)]
    if any("|" in word for word in plain[:2]):  # `topic create|list`: each of them
        parts = [word.split("|") for word in plain[:2]]
        return next(
            (
                fault
                for first in parts[0]
                for second in (parts[1] if len(parts) > 1 else [""])
                if (fault := fault_of_mention(f"logbroker {first} {second}"))
            ),
            None,
        )
    command, _, rest = _resolve(plain)
    if isinstance(command, str):
        return command
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "--version", "-h"}
    unknown = [word for word in rest if word.startswith("--") and word.split("=")[0].rstrip(",.:;") not in known]
    return f"no option {unknown[0]}" if unknown else None


def _resolve(words: list[str]) -> tuple[click.Command | str, list[str], list[str]]:
    """Return the command that words name, its names, and the words behind it; or an error instead of the command."""
    command: click.Command = cli
    names, rest = ["logbroker"], list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        context = click.Context(command, info_name=names[-1])
        found = command.get_command(context, rest[0])
        if found is None:
            return f"{' '.join(names)} has no command {rest[0]!r}", names, rest
        command = found
        names.append(rest.pop(0))
    return command, names, rest
