"""Settings of Sphinx: `make docs` builds the site out of docs/ and the pages at the root, warnings being errors, without network.

The source folder is the root of the repository, so that one relative link is good on the site and in a listing of the files.
"""

import os
import re
from pathlib import Path

os.environ["DELTAFOLD_BACKEND"] = "pure"  # the same names and words as Rust's, with type hints

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

project = "deltafold"
author = copyright = "deltafold contributors"
version = release = re.findall(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text("utf-8"), re.MULTILINE)[0]

root_doc = "docs/index"
include_patterns = ["docs/*.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "target", "site", "dist"]  # not even looked into
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"deltafold {version}"
html_extra_path = ["index.html"]  # leads to docs/index.html
html_show_sourcelink = html_copy_source = False


EXAMPLE = re.compile(r"^```(?:(deltas|chunks|sse)|(json|python) (\w+))$", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Two corrections."""
    app.connect("source-read", show_kinds)
    app.connect("autodoc-process-docstring", keep_colon, priority=400)  # before napoleon


def show_kinds(app: Sphinx, page: str, source: list[str]) -> None:
    """What a block of examples is stands behind its three ticks; on the site it is shown above it."""

    def captioned(fence: re.Match[str]) -> str:
        language = fence[2] or ("text" if fence[1] == "sse" else "json")
        return f"```{{code-block}} {language}\n:caption: {fence[1] or fence[3]}\n"

    source[0] = EXAMPLE.sub(captioned, source[0])


def keep_colon(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """An empty comment before the words: napoleon takes what stands in a first line before a colon for a type."""
    if what == "property":
        lines[:0] = ["..", ""]
