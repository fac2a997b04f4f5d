"""The objects of the Chat Completions API as TypedDicts, for annotations: ``from deltafold.types import ChatCompletion``."""

from ._objects import *  # noqa: F403 - the same names, public
from ._objects import __all__ as __all__
