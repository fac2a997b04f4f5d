#!/usr/bin/env bash
# What dependencies may do to us: licences, sources, doubles (no network), then known vulnerabilities (a download).
# Needs cargo-deny and pip-audit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo deny --locked check bans licenses sources
for manifest in Cargo.toml rust/fuzz/Cargo.toml rust/memory/Cargo.toml rust/bench/Cargo.toml; do
    cargo deny --locked --manifest-path "$manifest" --config "$PWD/deny.toml" check advisories
done
pip-audit .
