"""Other libraries, for tests of where they meet deltafold: absent ones are skipped, unless DELTAFOLD_TEST_PEERS=1."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import pytest


def load(name: str) -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else litellm asks the network for prices
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their own
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if os.environ.get("DELTAFOLD_TEST_PEERS") == "1" or error.name != name.split(".")[0]:
            raise
        pytest.skip(f"{name} is not installed")
