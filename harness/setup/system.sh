#!/bin/sh
# Installs the packages of the programs that are missing for GROUP (run, test or bench). Needs root.
# No service is started, and none that came with these packages stays enabled; services that were there before are
# left alone. Interrupted at any point, the next call puts things right. DPKG_ROOT (as dpkg knows it) prefixes paths.
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 # needrestart must not restart services for us

here=$(dirname "$(readlink -f "$0")")
programs_table=$here/programs.txt
. "$here/programs.sh"

patiently='-o DPkg::Lock::Timeout=300'
target=${DPKG_ROOT:-}
policy=$target/usr/sbin/policy-rc.d
policy_mark='# Put here by the set-up of Trellis while it installs packages.'
state=$target/var/lib/trellis-setup
enabled_before=$state/enabled-before

# A policy-rc.d of the machine's own waits beside ours. Finding our own here means that an earlier call was killed.
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

# Everything that enables a service: systemd's links (wants, requires, aliases) and the start links of init scripts.
enabled_links() {
    for folder in "$target/etc/systemd/system" "$target"/etc/rc[2-5S].d; do
        [ ! -d "$folder" ] || find "$folder" -type l ! -name 'K*' ! -lname /dev/null
    done | sort
}

# Kept on disk until all is done, so that the call after a killed one still knows what there was at first.
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
        *) rm -f "$link" ;; # which is what systemctl disable does
        esac
    done
    left=$(newly_enabled_links)
    if [ -n "$left" ]; then
        echo "system.sh: still enabled, disable by hand: $left" >&2
        return 1
    fi
}

# An apt-get that is killed leaves a dpkg behind, which may go on for a while. Only the lock matters here, not the check.
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
exec 9<"$target/usr/sbin" # of the machine, not of the checkout: two checkouts may be set up at once
flock 9
remember_enabled_links
trap put_things_right EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
forbid_service_starts

wait_for_dpkg
dpkg --configure -a # what a killed call left half done
# A third-party source that cannot be reached makes `update` fail, and need not matter: the installation decides.
apt-get update $patiently || echo "apt-get update failed; going on with the package lists at hand"
packages=$(missing_packages "$1")
if [ -n "$packages" ]; then
    apt-get install -y --no-install-recommends $patiently $packages
fi
