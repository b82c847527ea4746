#!/bin/sh
# Installs the packages of the programs that are missing for GROUP (run, test, bench or guest). Needs root.
# It starts no service and disables the services of new packages; existing services do not change. After an
# interruption the next call repairs the state. DPKG_ROOT (that of dpkg) prefixes paths.
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 # needrestart must not restart services

here=$(dirname "$(readlink -f "$0")")
programs_table=$here/programs.txt
. "$here/programs.sh"

patiently='-o DPkg::Lock::Timeout=300'
target=${DPKG_ROOT:-}
policy=$target/usr/sbin/policy-rc.d
policy_mark='# Put here by the set-up of Trellis while it installs packages.'
state=$target/var/lib/trellis-setup
enabled_before=$state/enabled-before

# Keeps the machine's own policy-rc.d, if any. If the file is ours, an earlier call was killed.
forbid_service_starts() {
    if [ -e "$policy" ] && ! grep -qF "$policy_mark" "$policy"; then
        mv "$policy" "$policy.trellis-kept"
    fi
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
    chmod 755 "$policy"
}

allow_service_starts() {
    rm -f "$policy"
    [ ! -e "$policy.trellis-kept" ] || mv "$policy.trellis-kept" "$policy"
}

# Prints all links that enable a service: systemd's (wants, requires, aliases) and the start links of init scripts.
enabled_links() {
    for folder in "$target/etc/systemd/system" "$target"/etc/rc[2-5S].d; do
        [ ! -d "$folder" ] || find "$folder" -type l ! -name 'K*' ! -lname /dev/null
    done | sort
}

# Keeps the links on disk until the end, so that the call after a killed one knows the original state.
remember_enabled_links() {
    mkdir -p "$state"
    if [ ! -e "$enabled_before" ]; then
        enabled_links >"$enabled_before.new"
        mv "$enabled_before.new" "$enabled_before"
    fi
}

newly_enabled_links() {
    enabled_links | comm -13 "$enabled_before" -
}

disable_new_services() {
    newly_enabled_links | while read -r link; do
        name=${link##*/}
        case $link in
        */rc?.d/*) update-rc.d "${name#S[0-9][0-9]}" disable ;;
        *) rm -f "$link" ;; # as systemctl disable does
        esac
    done
    left=$(newly_enabled_links)
    if [ -n "$left" ]; then
        echo "system.sh: still enabled; disable by hand: $left" >&2
        return 1
    fi
}

# A killed apt-get leaves a dpkg running, which may take a while. The check only waits for the lock.
wait_for_dpkg() {
    apt-get check $patiently || true
}

put_things_right() {
    status=$?
    trap - EXIT
    trap '' INT TERM HUP
    wait_for_dpkg
    allow_service_starts
    if disable_new_services; then
        rm -rf "$state"
    else
        status=1
    fi
    exit "$status"
}

mkdir -p "$target/usr/sbin"
exec 9<"$target/usr/sbin" # a lock of the machine: two checkouts may be set up at once
flock 9
remember_enabled_links
trap put_things_right EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
forbid_service_starts

wait_for_dpkg
dpkg --configure -a # completes what a killed call began
# An unreachable third-party source makes `update` fail, but the installation may still succeed.
apt-get update $patiently || echo "apt-get update failed; continuing with the existing package lists"
packages=$(missing_packages "$1")
if [ -n "$packages" ]; then
    apt-get install -y --no-install-recommends $patiently $packages
fi
