# Sourced: finds missing programs and packages. Set `programs_table` to the path of programs.txt first.

export PYTHONSAFEPATH=1 # the set-up may be started in any folder: no Python imports modules from there

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # sshd and others are there, and a user's PATH may lack them

minimum_python_minor=11
minimum_java=17

# Prints the first Python that is new enough and can make a virtual environment.
find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -I -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, $minimum_python_minor))" 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

java_is_new_enough() {
    major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge "$minimum_java" ]
}

is_present() { # PROGRAM
    command -v "$1" >/dev/null 2>&1 || return 1
    [ "$1" != java ] || java_is_new_enough
}

# Prints the first package of a comma-separated list that apt knows; if apt knows none, the first of the list.
first_offered() { # PACKAGES
    for package in $(echo "$1" | tr , ' '); do
        if apt-cache show "$package" >/dev/null 2>&1; then
            echo "$package"
            return
        fi
    done
    echo "${1%%,*}"
}

# Prints the package of the default Python if it is new enough, otherwise of a newer one (Ubuntu 22.04: in universe).
python_package() {
    minor=$(apt-cache show python3 2>/dev/null | sed -n 's/^Version: 3\.\([0-9]*\).*/\1/p' | head -n 1)
    if [ "${minor:-$minimum_python_minor}" -ge "$minimum_python_minor" ]; then
        echo python3-venv
    else
        echo "python3.$minimum_python_minor-venv"
    fi
}

# Prints the packages to install for the groups `run` and GROUP, one per line.
missing_packages() { # GROUP
    find_python >/dev/null || python_package
    while read -r program packages groups _; do
        case $program in '' | '#'*) continue ;; esac
        case ",$groups," in *",run,"* | *",$1,"*) ;; *) continue ;; esac
        is_present "$program" || first_offered "$packages"
    done <"$programs_table"
}
