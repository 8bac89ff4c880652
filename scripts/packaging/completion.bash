# Completion for crane, crane-run and craned. What there is to complete is what --help says, so that it is never another.

_crane_options() { # of the command line "$@"
    "$@" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u
}

_crane_verbs() { # below the command line "$@"
    "$@" --help 2>/dev/null | sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\) .*/\1/p'
}

_crane_clusters() {
    local file
    for file in /etc/crane/*.toml; do
        [[ -e $file ]] && basename "$file" .toml
    done
}

_crane() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local words=("${COMP_WORDS[0]}") place
    COMPREPLY=()
    case $previous in
        --state-dir)
            mapfile -t COMPREPLY < <(compgen -W "$(_crane_clusters | sed 's|^|/var/lib/crane/|')" -- "$current"
                compgen -d -- "$current")
            return ;;
        --config | --statement | --verify | --authority | --cert | --key | --ca)
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return ;;
        --from | --store | --dir | --out)
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            return ;;
    esac
    # The verbs that stand before the cursor, as far as the program knows them.
    for ((place = 1; place < COMP_CWORD; place++)); do
        [[ ${COMP_WORDS[place]} == -* ]] && break
        _crane_verbs "${words[@]}" | grep -qxF -- "${COMP_WORDS[place]}" || break
        words+=("${COMP_WORDS[place]}")
    done
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_crane_options "${words[@]}")" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -W "$(_crane_verbs "${words[@]}")" -- "$current")
        ((${#COMPREPLY[@]})) || mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

_crane_daemon() {
    local current=${COMP_WORDS[COMP_CWORD]}
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_crane_options "${COMP_WORDS[0]}")" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -F _crane crane
complete -F _crane_daemon -o bashdefault crane-run craned
