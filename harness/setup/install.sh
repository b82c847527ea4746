#!/bin/sh
# Sets up a checkout for the programs of GROUP: system packages, then .venv from requirements.lock. It prints to stderr;
# the output of apt, uv and pip goes to .trellis/setup.log. The stamp comes last: without it, everything is repeated.
# Usage: install.sh ROOT GROUP
set -eu
export LC_ALL=C

root=$1
group=$2
setup=$root/harness/setup
log=$root/.trellis/setup.log
programs_table=$setup/programs.txt
. "$setup/stamp.sh"
. "$setup/programs.sh"
. "$setup/progress.sh"

explain_missing_right() { # PACKAGES
    {
        echo "trellis: these packages are missing, and this user may not install them:"
        echo "  $(echo "$1" | tr '\n' ' ')"
        echo "Ask an administrator to run this command, which starts and enables no service:"
        echo "  sudo sh $setup/system.sh $group"
        echo "or, by hand:"
        echo "  sudo apt-get update"
        echo "  sudo apt-get install --no-install-recommends $(echo "$1" | tr '\n' ' ')"
        echo "Then repeat your command."
    } >&2
}

install_system_packages() {
    packages=$(missing_packages "$group")
    [ -n "$packages" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "trellis: no apt-get found. Install the equivalents of these Debian packages: $packages" >&2
        return 1
    fi
    if [ "$(id -u)" -eq 0 ]; then
        sudo=
    elif sudo -n true 2>/dev/null; then
        sudo='sudo -n'
    else
        explain_missing_right "$packages"
        return 1
    fi
    # shellcheck disable=SC2086 # $sudo is zero or two words
    follow "system packages" '^Setting up ' '^[0-9]* upgraded, ' $sudo sh "$setup/system.sh" "$group"
}

# The groups share one .venv: the set-up of a second group keeps it.
has_current_venv() {
    for other in run test bench; do
        if is_set_up "$root" "$other"; then
            return 0
        fi
    done
    return 1
}

# Prints where a chain of links leads, as far as this user can follow it.
follow_links() { # PATH
    place=$1
    while next=$(readlink "$place"); do
        case $next in
        /*) place=$next ;;
        *) place=$(dirname "$place")/$next ;;
        esac
    done
    echo "$place"
}

if [ ! -w "$root" ] && is_stamped "$root" "$group"; then
    {
        echo "trellis: $root is set up, but this user cannot run its Python, $(follow_links "$root/.venv/bin/python")."
        echo "Whoever set it up can set it up again with a Python that every user can run, such as the system's:"
        echo "  cd $root && ./trellis clean --venv && PATH=/usr/bin:\$PATH ./trellis --help"
    } >&2
    exit 1
fi
if [ ! -w "$root" ]; then
    {
        echo "trellis: $root is not set up for this (programs of the group '$group'), and this user cannot write there."
        echo "Set it up once as a user that can write there; after that it may be read-only:"
        case $group in
        run) echo "  $root/trellis --help" ;;
        *) echo "  $root/trellis $group --help" ;;
        esac
    } >&2
    exit 1
fi
mkdir -p "$root/.trellis"
exec 9<"$setup"
if ! flock -n 9; then
    echo "trellis: waiting for another set-up of this checkout" >&2
    flock 9
fi
if is_set_up "$root" "$group"; then # another process has set it up meanwhile
    exit 0
fi
: >"$log"
echo "trellis: setting up $root (log: $log)" >&2
install_system_packages
if ! has_current_venv; then
    follow "python packages" '^ *(Collecting|Processing|\+) ' "$(grep -c '==' "$root/requirements.lock")" sh "$setup/venv.sh" "$root"
    # With the archive analyses start some seconds sooner. It is optional; .ci/run --all makes it.
    [ "${CI:-}" = true ] || follow "Spark's classes" '\.jsa$' 1 "$root/.venv/bin/python" -P -m metrics.session || true
fi
stamp=$(stamp_of "$root" "$group")
fingerprint "$root" >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "trellis: set up" >&2
