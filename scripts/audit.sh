#!/usr/bin/env bash
# Known vulnerabilities and licences: needs cargo-deny, cargo-audit and pip-audit, and the network for their databases.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo deny check
cargo audit
cargo audit --file rust/fuzz/Cargo.lock
pip-audit .
