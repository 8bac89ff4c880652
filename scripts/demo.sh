#!/bin/bash
# The demonstration: three replicas of Debian's own Apache, identical to the byte, and one of them killed.
# Takes some seconds and leaves the machine as it was, but for packages that were missing.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

jobs=${JOBS:-$(nproc)}
port=${DEMO_PORT:-}
requests=${DEMO_REQUESTS:-2000}
crane=scripts/crane
state=
step=0

say() { echo "demo: $*"; }
begin() { # a line per step: what is being done ...
    step=$((step + 1))
    printf 'demo: %2d. %-58s ' "$step" "$1 ..."
}
done_with() { echo "$1"; } # ... and how it went
fail() {
    echo "failed"
    echo "demo: $1" >&2
    exit 1
}

finish() {
    local code=$?
    if [[ -n $state && -e $state/run.json ]]; then
        "$crane" stop --state-dir "$state" >/dev/null 2>&1 || true
    fi
    if ((code != 0)) && [[ -n $state && -d $state ]]; then
        say "the logs of this run are kept in $state" >&2
    elif [[ -n $state ]]; then
        rm -rf "$state"
    fi
}
trap finish EXIT
trap 'exit 130' INT TERM

# The first replica that leads, as "id address:port pid".
primary() {
    "$crane" status --json --state-dir "$state" | python3 -c '
import json, sys
for row in json.load(sys.stdin)["replicas"]:
    if row["alive"] and row["role"] == "primary" and row.get("listen"):
        print(row["replica"], row["listen"][0]["client"], row["pid"])
        break'
}

get() { # address:port -> the page's hash, from a request that a living replica answered
    curl -sS --fail --max-time 10 "http://$1/" | sha256sum | cut -c1-16
}

load() { # address:port, requests -> requests per second
    local text
    text=$(ab -q -s 30 -n "$2" -c 8 "http://$1/" 2>&1) || { echo "$text" >&2 && return 1; }
    if ! grep -q 'Failed requests: *0$' <<<"$text" || grep -q 'Non-2xx responses' <<<"$text"; then
        echo "$text" >&2
        return 1
    fi
    sed -n 's/^Requests per second: *\([0-9]*\).*/\1/p' <<<"$text"
}

# A port that is free on all three addresses, unless the operator wants a certain one.
choose_port() {
    local host candidate
    for candidate in $(seq 18080 18130); do
        for host in 127.0.0.1 127.0.0.2 127.0.0.3; do
            if (: <"/dev/tcp/$host/$candidate") 2>/dev/null; then continue 2; fi
        done
        echo "$candidate"
        return
    done
    say "no free port between 18080 and 18130; give one with DEMO_PORT=" >&2
    return 1
}
[[ -n $port ]] || port=$(choose_port)

begin "install what is missing"
if scripts/install_deps.sh --demo --check >/dev/null; then
    done_with "nothing is missing"
else
    echo
    scripts/install_deps.sh --demo || exit 1
fi

begin "build"
log=$(mktemp)
make -j"$jobs" all >"$log" 2>&1 || { tail -n 20 "$log" >&2 && fail "make failed; its log is $log"; }
rm -f "$log"
done_with "ok"

# Not /tmp, which starts empty in the containers; and not memory, for the log's durability is part of the show.
state=$(mktemp -d /var/tmp/crane-demo-XXXXXX)
begin "start three replicas of $(apache2 -v 2>/dev/null | sed -n 's/.*: \(Apache[^ ]*\).*/\1/p')"
start=$(date +%s%N)
scripts/crane-run --detach --state-dir "$state" --port-map "80:$port" -- apache2 -DFOREGROUND >"$state/demo.log" 2>&1 ||
    { cat "$state/demo.log" >&2 && fail "crane-run failed"; }
done_with "ready in $((($(date +%s%N) - start) / 1000000)) ms"
sed -n 's/^crane-run: *\(replica .*\)  [^ ]*$/         \1/p' "$state/demo.log"

begin "curl: a page from each of the three addresses"
page=
for host in 127.0.0.1 127.0.0.2 127.0.0.3; do
    hash=$(get "$host:$port") || fail "no answer from $host:$port"
    [[ -z $page || $page == "$hash" ]] || fail "$host:$port gave another page than 127.0.0.1:$port"
    page=$hash
done
done_with "the same page (sha256 $page)"

read -r leader address pid < <(primary) || fail "no replica is primary"
begin "ab: $requests requests, 8 at a time, to $address"
rate=$(load "$address" "$requests") || fail "some requests failed"
done_with "none failed, $rate/s"

begin "compare the output logs of the replicas"
compared=$("$crane" diff --state-dir "$state" 2>&1) || { echo "$compared" >&2 && fail "the replicas differ"; }
done_with "identical"
sed 's/^/         /' <<<"$compared"

begin "kill -9 the primary: replica $leader, craned $pid"
kill -9 "$pid"
start=$(date +%s%N)
done_with "killed"

begin "wait for a backup to take over"
for _ in $(seq 100); do
    read -r next next_address next_pid < <(primary 2>/dev/null) || true
    if [[ -n ${next:-} && $next_pid != "$pid" ]] && hash=$(get "$next_address" 2>/dev/null); then break; fi
    next=
    sleep 0.05
done
[[ -n ${next:-} ]] || fail "no other replica served within the time"
[[ $hash == "$page" ]] || fail "replica $next gives another page"
done_with "replica $next serves after $((($(date +%s%N) - start) / 1000000)) ms"

begin "ab: $requests requests to $next_address"
rate=$(load "$next_address" "$requests") || fail "some requests failed"
done_with "none failed, $rate/s"

begin "compare the output logs again, the killed replica's too"
compared=$("$crane" diff --wait 60 --state-dir "$state" 2>&1) || { echo "$compared" >&2 && fail "the replicas differ"; }
done_with "identical"

begin "stop, and look for anything left behind"
"$crane" stop --state-dir "$state" >/dev/null || fail "crane stop failed"
if pgrep -f -- "$state" >/dev/null || grep -qF -- "$state" /proc/mounts; then
    pgrep -af -- "$state" >&2 || true
    fail "something is left of $state"
fi
done_with "nothing"
