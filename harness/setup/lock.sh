#!/bin/sh
# Regenerates requirements.lock from pyproject.toml: after a dependency changed, or for newer versions (--upgrade).
# Needs uv (`pip install uv`).
set -eu
cd "$(dirname "$(readlink -f "$0")")/../.."
exec uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --fork-strategy fewest \
    --generate-hashes --no-emit-index-url --no-annotate --quiet \
    --custom-compile-command "sh harness/setup/lock.sh" --output-file requirements.lock "$@"
