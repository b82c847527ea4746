# Sourced: checks whether a checkout is set up. It runs at every start, so it must be fast.
# A group is a set of programs (programs.txt): every verb needs `run`; the verbs `test` and `bench` need their own, too.

group_of_verb() { # VERB
    case $1 in
    test | bench) echo "$1" ;;
    *) echo run ;;
    esac
}

# Prints the content of the stamp: a hash of the locks, and the checkout's path, since a .venv cannot be moved.
fingerprint() { # ROOT
    cat "$1/requirements.lock" "$1/harness/setup/programs.txt" | sha256sum
    echo "$1"
}

stamp_of() { # ROOT GROUP
    echo "$1/.venv/trellis-$2.stamp"
}

is_set_up() { # ROOT GROUP
    [ -x "$1/.venv/bin/python" ] && is_stamped "$1" "$2"
}

is_stamped() { # ROOT GROUP
    fingerprint "$1" | cmp -s - "$(stamp_of "$1" "$2")"
}
