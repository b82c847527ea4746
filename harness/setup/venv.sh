#!/bin/sh
# Makes ROOT/.venv from the lock and discards an existing one, which may be incomplete (pip's cache keeps the
# downloads). Packages come from the index that the user's pip is configured for; the lock's hashes verify them.
# Usage: venv.sh ROOT
set -eu

root=$1
. "$root/harness/setup/programs.sh"
python=$(find_python)
rm -rf "$root/.venv"
"$python" -m venv "$root/.venv"

# Puts the checkout on this Python's path, whatever the working directory.
site_packages=$("$root/.venv/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
echo "$root" >"$site_packages/trellis-checkout.pth"

export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
exec "$root/.venv/bin/python" -m pip install --progress-bar off --require-hashes --requirement "$root/requirements.lock"
