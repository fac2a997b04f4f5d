"""How the commands' help looks."""

from __future__ import annotations

import argparse

__all__ = ["command"]


def command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """A subcommand whose description and epilog are printed as they are."""
    return commands.add_parser(
        name,
        help=about,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
