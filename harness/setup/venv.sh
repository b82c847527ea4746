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

pip() {
    "$root/.venv/bin/python" -m pip "$@"
}
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

# Prints the blocks of the lock for NAME...
locked() { # NAME...
    for name; do
        sed -n "/^$name==/,/[^\\\\]\$/p" "$root/requirements.lock"
    done
}

install_by_pip() { # OPTION...
    pip install --progress-bar off --require-hashes "$@"
}

# uv knows nothing of pip's configuration. Exports the same for it, and fails for a key that it cannot be told.
configure_uv() {
    settings=$(pip config list | uv_settings) || return 1
    for setting in $settings; do
        export "${setting?}"
    done
}

# Turns lines such as `global.index-url='https://...'` into uv's. Those of the environment come last, and win.
uv_settings() {
    sort -r | while IFS='=' read -r key value; do
        value=${value#\'}
        value=${value%\'}
        case $key in
        global.* | :env:.*) ;;
        install.*) exit 1 ;;
        *) continue ;; # another command's
        esac
        case ${key##*.} in
        index-url) echo "UV_DEFAULT_INDEX=$value" ;;
        extra-index-url) echo "UV_INDEX=$value" ;;
        find-links) echo "UV_FIND_LINKS=$value" ;;
        trusted-host) echo "UV_INSECURE_HOST=$value" ;;
        cert) echo "SSL_CERT_FILE=$value" ;;
        timeout | default-timeout) echo "UV_HTTP_TIMEOUT=$value" ;;
        user | disable-pip-version-check | no-cache-dir | progress-bar | no-input | break-system-packages) continue ;;
        root-user-action | quiet | verbose | require-virtualenv | no-warn-script-location | retries) continue ;;
        *) exit 1 ;;
        esac
        case $value in *[[:space:]\\\'\"]*) exit 1 ;; esac # several values
    done
}

install_by_uv() { # OPTION...
    configure_uv && "$root/.venv/bin/uv" pip install --python "$root/.venv/bin/python" --require-hashes "$@"
}

# PySpark comes as source, which would be built with whatever setuptools is newest, fetched without a hash. So the
# lock's setuptools comes first, and nothing else is fetched for the build. Its wheel is not compressed, since it is
# unpacked at once.
locked setuptools uv >"$root/.venv/build-requirements.txt"
install_by_pip --requirement "$root/.venv/build-requirements.txt"
set -- --no-build-isolation --requirement "$root/requirements.lock"
if ! install_by_uv --config-setting=--build-option=--compression=stored "$@"; then
    echo "uv cannot install the packages here; pip does"
    install_by_pip "$@"
fi
