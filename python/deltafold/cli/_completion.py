"""``deltafold completion``: what a shell needs to complete the command, made from the parser itself."""

from __future__ import annotations

import argparse

from . import _help, _terminal

__all__ = ["add"]

DESCRIPTION = "Prints a script with which the shell completes commands, options, choices and file names."

EPILOG = """\
for good:
  deltafold completion bash > ~/.local/share/bash-completion/completions/deltafold
  deltafold completion zsh  > a folder of $fpath/_deltafold
  deltafold completion fish > ~/.config/fish/completions/deltafold.fish
for this shell:
  eval "$(deltafold completion bash)"
"""

Option = tuple[list[str], str, list[str], bool, bool]  # names, help, choices, takes a value, takes a file


def add(commands: argparse._SubParsersAction[_help.Parser]) -> None:
    """Adds the subcommand to the parser."""
    parser = _help.command(commands, "completion", "print a completion script for a shell", DESCRIPTION, EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(run=lambda arguments: run(arguments.shell, commands))


def run(shell: str, commands: argparse._SubParsersAction[_help.Parser]) -> int:
    """Prints the script."""
    abouts = {action.dest: action.help or "" for action in commands._choices_actions}
    options = {name: _options(parser) for name, parser in commands.choices.items()}
    words = {name: _words(parser) for name, parser in commands.choices.items()}
    _terminal.write({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](abouts, options, words).encode())
    return 0


def _options(parser: argparse.ArgumentParser) -> list[Option]:
    return [
        (
            list(action.option_strings),
            (action.help or "").partition(";")[0].partition(":")[0].replace("%%", "%"),
            [str(choice) for choice in action.choices or ()],
            action.nargs != 0,
            action.metavar in ("PAGE", "FILE"),
        )
        for action in parser._actions
        if action.option_strings
    ]


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """The choices of an argument without a name; none where it is a file."""
    return [str(word) for action in parser._actions if not action.option_strings for word in action.choices or ()]


def _bash(abouts: dict[str, str], options: dict[str, list[Option]], words: dict[str, list[str]]) -> str:
    lines = [
        "_deltafold() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{" ".join(abouts)} --help --version" -- "$word")); return',
        "    fi",
        '    case "$command $before" in',
    ]
    for command, all_options in options.items():
        for names, _, choices, value, file in all_options:
            if value and not file:
                pattern = "|".join(f'"{command} {name}"' for name in names)
                reply = f'COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$word"))' if choices else ":"
                lines.append(f"        {pattern}) {reply}; return;;")
            elif value:
                pattern = "|".join(f'"{command} {name}"' for name in names)
                lines.append(f'        {pattern}) COMPREPLY=($(compgen -f -- "$word")); return;;')
    lines += ["    esac", '    case "$command" in']
    for command, all_options in options.items():
        every = " ".join([*words[command], *(name for names, *_ in all_options for name in names)])
        lines.append(f'        {command}) COMPREPLY=($(compgen -W "{every}" -- "$word"));;')
    lines += [
        "    esac",
        '    case "$word" in -*) ;; *) [ "$command" = completion ] || COMPREPLY=($(compgen -f -- "$word"));; esac',
        "}",
        "complete -o filenames -F _deltafold deltafold",
    ]
    return "\n".join(lines) + "\n"


def _zsh(abouts: dict[str, str], options: dict[str, list[Option]], words: dict[str, list[str]]) -> str:
    lines = ["#compdef deltafold", "_deltafold() {", "  if (( CURRENT == 2 )); then", "    local -a commands=("]
    lines += [f"      '{name}:{_quoted(about)}'" for name, about in abouts.items()]
    lines += ["    )", "    _describe command commands; return", "  fi", "  local command=$words[2]"]
    lines += ["  shift words; (( CURRENT-- ))", "  case $command in"]
    for command, all_options in options.items():
        lines.append(f"    {command}) _arguments \\")
        for names, about, choices, value, file in all_options:
            for name in names:
                action = (
                    ""
                    if not value
                    else f":value:({' '.join(choices)})"
                    if choices
                    else ":file:_files"
                    if file
                    else ":value: "
                )
                lines.append(f"      '{name}[{_quoted(about)}]{action}' \\")
        lines.append(
            f"      '*:argument:({' '.join(words[command])})';;" if words[command] else "      '*:file:_files';;"
        )
    lines += [
        "  esac",
        "}",
        'if [ "$funcstack[1]" = _deltafold ]; then _deltafold "$@"; else compdef _deltafold deltafold; fi',
    ]
    return "\n".join(lines) + "\n"


def _fish(abouts: dict[str, str], options: dict[str, list[Option]], words: dict[str, list[str]]) -> str:
    lines = [
        "complete -c deltafold -n __fish_use_subcommand -l help",
        "complete -c deltafold -n __fish_use_subcommand -l version",
    ]
    for command, about in abouts.items():
        lines.append(f"complete -c deltafold -n __fish_use_subcommand -f -a {command} -d '{_quoted(about)}'")
    for command, all_options in options.items():
        start = f"complete -c deltafold -n '__fish_seen_subcommand_from {command}'"
        for names, about, choices, value, file in all_options:
            line = start + "".join(f" -{'l' if name[:2] == '--' else 's'} {name.lstrip('-')}" for name in names)
            line += "" if not value else f" -x -a '{' '.join(choices)}'" if choices else " -r" if file else " -x"
            lines.append(f"{line} -d '{_quoted(about)}'")
        if words[command]:
            lines.append(f"{start} -f -a '{' '.join(words[command])}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Safe within single quotes, and within the brackets of zsh."""
    return text.replace("'", "’").replace("[", "(").replace("]", ")").replace("\\", "/")
