"""What every test shares: the fixture ``backend`` (both implementations, in one process) and the cuts of a body."""

from __future__ import annotations

import importlib
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
PURE_ONLY = os.environ.get("DELTAFOLD_TEST_PURE_ONLY") == "1"
BACKENDS = ["pure", "rust"]

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


SHARED = {  # by fixture, what a test changes for every thread of the process
    "caplog": "log records are everybody's",
    "run": "the working folder and standard output are everybody's",
}


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Tells pytest-run-parallel which tests must have the process to themselves."""
    for fixture, reason in SHARED.items():
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.thread_unsafe(reason=reason))


@dataclass(frozen=True)
class Backend:
    """One implementation's public names, whichever of them the package itself has chosen."""

    name: str
    ChatCompletionAccumulator: Any
    SSEDecoder: Any
    StreamFilter: Any
    merge: Any
    merge_many: Any


def load(name: str) -> Backend:
    """The implementation of that name; the extension may only be missing where DELTAFOLD_TEST_PURE_ONLY=1 says so."""
    if name == "rust" and PURE_ONLY:
        pytest.skip("DELTAFOLD_TEST_PURE_ONLY=1: the extension is not tested")
    module = importlib.import_module(f"deltafold._{name}")
    return Backend(
        name, module.ChatCompletionAccumulator, module.SSEDecoder, module.StreamFilter, module.merge, module.merge_many
    )


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return load(request.param)


@pytest.fixture
def both() -> tuple[Backend, Backend]:
    """The pure and the Rust implementation, for a test that compares them."""
    return load("pure"), load("rust")


def feeds(data: bytes, seed: int = 0, rounds: int = 4) -> Iterator[list[bytes]]:
    """``data`` in pieces: whole, byte by byte (up to 64 KiB), then cut at random places, the same ones for the same seed."""
    yield [data]
    if len(data) <= 65536:
        yield [data[i : i + 1] for i in range(len(data))]
    for round_ in range(rounds):
        dice = random.Random(f"{seed} {round_}")
        largest = dice.choice([3, 40, 700, 1400, 16384])
        yield list(pieces(data, dice, largest))


def pieces(data: bytes, dice: random.Random, largest: int) -> Iterator[bytes]:
    """``data`` cut by the dice into pieces of 0 to ``largest`` bytes; an empty piece must change nothing."""
    at = 0
    while at < len(data):
        size = dice.randint(0, largest)
        yield data[at : at + size]
        at += size


def recipes(document: str) -> list[str]:
    """The Python of a page in docs/, block by block."""
    return re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / document).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
