# Sourced: says whether a checkout is set up. Nothing here may be slow, it runs at every start.
# A group is a set of programs (programs.txt): `run` is always needed, `test` and `bench` by the verbs of their names.

group_of_verb() { # VERB
    case $1 in
    test | bench) echo "$1" ;;
    *) echo run ;;
    esac
}

# What a finished set-up is stamped with: the locks' content, and the place, since a .venv cannot be moved.
fingerprint() { # ROOT
    cat "$1/requirements.lock" "$1/harness/setup/programs.txt" | sha256sum
    echo "$1"
}

stamp_of() { # ROOT GROUP
    echo "$1/.venv/trellis-$2.stamp"
}

is_set_up() { # ROOT GROUP
    [ -x "$1/.venv/bin/python" ] && fingerprint "$1" | cmp -s - "$(stamp_of "$1" "$2")"
}
