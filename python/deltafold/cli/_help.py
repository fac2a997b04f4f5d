"""How the commands' help looks, and what is said of a wrong command line."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn

from .._errors import escape

__all__ = ["Parser", "command"]


class Parser(argparse.ArgumentParser):
    """Says of a word that it does not know which one may have been meant."""

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings if option[:2] == "--"]
        wrong = re.match(r"unrecognized arguments: (--[^ =]+)", message)
        if wrong is None and (wrong := re.search(r"invalid choice: '([^']*)'", message)):
            known = [str(choice) for action in self._actions for choice in action.choices or ()]
        close = difflib.get_close_matches(wrong[1], known, 1) if wrong else []
        # A shell's pattern may have brought names that nobody has read.
        super().error(escape(message) + "".join(f"; did you mean {name}?" for name in close))


def command(
    commands: argparse._SubParsersAction[Parser], name: str, about: str, description: str, epilog: str
) -> Parser:
    """A subcommand whose description and epilog are printed as they are."""
    return commands.add_parser(
        name,
        help=about,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
