# make install && .venv/bin/deltafold merge --pretty examples/openai-text.sse
# make test

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CARGO := $(shell command -v cargo)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifeq ($(CARGO),)
export DELTAFOLD_TEST_PURE_ONLY := 1
endif

.PHONY: install test lint format docs bench bench-check fuzz wheel clean
.DEFAULT_GOAL := install

SOURCES := pyproject.toml Cargo.toml Cargo.lock $(shell find _build rust -name target -prune -o -name '*.rs' -print -o -name '*.toml' -print -o -name '*.py' -print)

install: $(VENV)/installed  ## the package, editable, with all that tests and checks need

$(VENV)/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev --editable .
	touch $@

test: install  ## both implementations; without cargo on the path only the pure one
ifneq ($(CARGO),)
	cargo test --quiet --package deltafold-core
	cargo test --quiet --manifest-path rust/memory/Cargo.toml --target-dir target
endif
	$(BIN)/python -m pytest -q $(ARGS)

lint: install  ## style, types, workflows; changes nothing
	$(BIN)/python -m pip install --quiet --group lint
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/zizmor --quiet --offline .github
ifneq ($(CARGO),)
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
endif

format: install  ## rewrites the sources as lint wants them
	$(BIN)/python -m pip install --quiet --group lint
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .
	cargo fmt --all

docs: install  ## the site in site/, without network, warnings being errors
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --conf-dir docs --doctree-dir target/doctrees . site

bench: install  ## ratios to other ways of merging, and benches/ratios.svg
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python benches/compare.py --plot benches/ratios.svg $(ARGS)

bench-check: install  ## instructions per chunk against benches/instructions.json; needs valgrind
	$(BIN)/python scripts/callgrind.py --check $(ARGS)

fuzz: install  ## every target for a minute; needs cargo-fuzz and a nightly toolchain, and atheris for the Python side
	for target in $$(cargo +nightly fuzz list --fuzz-dir rust/fuzz); do \
		mkdir -p rust/fuzz/corpus/$$target; \
		cargo +nightly fuzz run --fuzz-dir rust/fuzz $$target rust/fuzz/corpus/$$target \
			$$(ls -d rust/fuzz/seeds/$$target 2>/dev/null) -- -max_total_time=60 -max_len=4096 || exit 1; \
	done
	if $(BIN)/python -c 'import atheris' 2>/dev/null; then \
		mkdir -p rust/fuzz/corpus/python && $(BIN)/python tests/fuzz.py -max_total_time=60 -max_len=4096 \
			rust/fuzz/corpus/python rust/fuzz/seeds/accumulate rust/fuzz/seeds/sse; \
	else echo 'atheris is not installed: tests/fuzz.py was left out'; fi

wheel: install  ## sdist and wheel in dist/
	$(BIN)/python -m build --outdir dist

clean:
	rm -rf target dist build site .hypothesis .pytest_cache .mypy_cache .ruff_cache .benchmarks $(VENV)/installed
	find python -name '*.so' -delete
