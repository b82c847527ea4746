# Sourced: shows the progress of a long command. Set `log` to the file for its output first.

telling='^ *(Get:|Unpacking |Setting up |Collecting |Downloading |Installing |Running |Building )' # lines of apt, uv, pip to show

# Runs COMMAND and counts the lines of its output that match PATTERN. TOTAL is a number, or the pattern of apt's line
# with the number of packages to install.
follow() { # LABEL PATTERN TOTAL COMMAND...
    label=$1
    pattern=$2
    total=$3
    shift 3
    offset=$(wc -l <"$log")
    started=$(date +%s)
    setsid "$@" >>"$log" 2>&1 </dev/null & # a separate process group, so that an interruption ends all of it
    job=$!
    trap 'end_job; echo >&2; exit 130' INT TERM HUP
    show_progress
    status=0
    wait "$job" || status=$?
    trap - INT TERM HUP
    [ ! -t 2 ] || printf '\r\033[K' >&2
    if [ "$status" -ne 0 ]; then
        echo "trellis: $label: failed; the last lines of $log:" >&2
        tail -n 20 "$log" | sed 's/^/  /' >&2
        return "$status"
    fi
    echo "trellis: $label: done in $(($(date +%s) - started)) s" >&2
}

# Ends all processes of $job. A process that is just being started can escape one signal to the group.
end_job() {
    kill -- "-$job" 2>/dev/null
    wait "$job"
    for _ in 1 2 3 4 5 6 7 8 9; do
        kill -- "-$job" 2>/dev/null || return 0
        sleep 0.1
    done
}

# Shows the progress until $job ends: on a terminal a line that changes, otherwise one line every 20 s.
show_progress() {
    said=$started
    while kill -0 "$job" 2>/dev/null; do
        now=$(date +%s)
        if [ -t 2 ]; then
            printf '\r\033[K%.79s' "trellis: $(progress_line)" >&2
        elif [ $((now - said)) -ge 20 ]; then
            said=$now
            printf '%.119s\n' "trellis: $(progress_line)" >&2
        fi
        sleep 0.2
    done
}

progress_line() {
    output=$(tail -n "+$((offset + 1))" "$log")
    count=$(printf '%s\n' "$output" | grep -cE "$pattern") || true
    case $total in
    *[!0-9]*) of=$(printf '%s\n' "$output" | sed -n "s/$total\([0-9]*\) newly installed.*/\1/p" | tail -n 1) ;;
    *) of=$total ;;
    esac
    last=$(printf '%s\n' "$output" | grep -E "$telling" | tail -n 1 | sed 's/^ *//') || true
    echo "$label $count/${of:-?}, $(($(date +%s) - started)) s: $last"
}
