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
install() {
    "$root/.venv/bin/python" -m pip install --progress-bar off --require-hashes "$@"
}

# PySpark comes as source, which pip would build with whatever setuptools is newest, fetched without a hash. So the
# lock's setuptools comes first, and nothing else is fetched for the build.
sed -n '/^setuptools==/,/[^\\]$/p' "$root/requirements.lock" >"$root/.venv/build-requirements.txt"
install --requirement "$root/.venv/build-requirements.txt"
install --no-build-isolation --requirement "$root/requirements.lock"
