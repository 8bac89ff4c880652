#!/bin/bash
# Brings a CRIU that works on the running kernel, for process images (checkpoints of a server's memory). Does nothing
# when there is one. Whether one works is not told by its version: a small tree of processes is dumped and restored.
#
# Debian's own package is no choice: it is linked dynamically, and craned runs CRIU inside the container with the host's
# privileges, where it would load what the server has put in the place of a library.
set -euo pipefail

prefix=${CRANE_CRIU_PREFIX:-/opt/crane/criu}
version=4.2.1
recipe=$version-2  # another one when what is below, or a patch, makes another program of it
tarball_name=criu_$version.orig.tar.xz
sha256=29ec0ee09e296479fe7048c80980e8ef1d0684d0b0204c2b101dfea19f6725b9
patches=$(dirname "$(readlink -f "$0")")/../checkpoint/criu
[[ -d $patches ]] || patches=$(dirname "$(readlink -f "$0")")/criu

usage() {
    cat <<TEXT
usage: install_criu.sh [--try CRIU]
  (none)       CRIU $version, built from Debian's source into $prefix (another folder:
               CRANE_CRIU_PREFIX), if the one there does not work on the running kernel
  --try CRIU   says on one line whether the program CRIU works here, and exits 0 if so; installs nothing
CRIU_TARBALL names a copy of $tarball_name for a machine that cannot fetch it.
TEXT
}

say() { echo "install_criu: $*"; }
fail() {
    say "$*" >&2
    say "without CRIU there are no process images (see crane check); everything else runs" >&2
    exit 1
}


# In a pid namespace of its own, so that pids are free at the restore; a process of another user, since its limits are
# harder to read. $1: the program, $2: a folder. What is left running ends with the namespace.
trial='
set -eu
criu=$1 images=$2
cd /
# What was opened outside cannot be dumped inside.
for open in /proc/self/fd/*; do [ "${open##*/}" -lt 3 ] || eval "exec ${open##*/}>&-"; done
mkdir -p "$images"
ip link set lo up 2>/dev/null || true
setpriv --reuid=65534 --regid=65534 --clear-groups setsid sh -c "sleep 1000 & wait" </dev/null >/dev/null 2>&1 &
root=$!
for turn in $(seq 200); do
    child=$(cat /proc/$root/task/$root/children 2>/dev/null || true)
    [ -n "$child" ] && [ "$(cat /proc/${child% }/comm)" = sleep ] && break
    sleep 0.01
done
step=dump
"$criu" dump -t $root -D "$images" --network-lock skip --manage-cgroups=ignore -o dump.log >/dev/null 2>&1
! kill -0 $root 2>/dev/null || wait $root || true
"$criu" restore -d -D "$images" --manage-cgroups=ignore -o restore.log >/dev/null 2>&1
[ "$(cat /proc/${child% }/comm)" = sleep ]
'

# Prints what stopped it.
try_criu() {
    local criu=$1 images why
    if [[ ! -x $criu ]]; then echo "there is no program $criu" && return 1; fi
    if ((EUID != 0)); then echo "only root can try it" && return 1; fi
    if ! "$criu" --version >"$work/version" 2>&1; then
        echo "it cannot be run: $(tail -n 1 "$work/version")" && return 1
    fi
    images=$(mktemp -d "$work/trial-XXXXXX")
    if timeout -k 5 30 unshare --fork --kill-child --pid --net --mount --mount-proc \
        bash -c "$trial" bash "$criu" "$images" >"$images/said" 2>&1; then
        rm -rf "$images"
        return 0
    fi
    why=$(cat "$images"/restore.log "$images"/dump.log "$images/said" 2>/dev/null |
        sed -n '/RLIMIT_NOFILE/d; s/^.*Error (/Error (/p; T; q')
    why=${why:-$(tail -qn 1 "$images"/*.log "$images/said" 2>/dev/null | tail -n 1)}
    echo "${why:-its trial ended without a word}"
    return 1
}

version_of() { "$1" --version 2>/dev/null | sed -n 's/^Version: //p'; }

case "${1-}/$#" in
    /0 | --try/2) ;;
    -h/1 | --help/1) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
esac
work=$(mktemp -d /var/tmp/crane-criu-XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
if [[ ${1-} == --try && $# -eq 2 ]]; then
    if why=$(try_criu "$2"); then echo "$(version_of "$2")"; else echo "$why" && exit 1; fi
    exit 0
fi

if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
        exec sudo --preserve-env=CRIU_TARBALL,CRANE_CRIU_PREFIX "$0"
    fi
    fail "neither root nor sudo: have an administrator run $0"
fi

if [[ -x $prefix/criu && $(cat "$prefix/recipe" 2>/dev/null) == "$recipe" ]] && try_criu "$prefix/criu" >/dev/null; then exit 0; fi
command -v apt-get >/dev/null || fail "this is not a Debian system; put a static CRIU $version at $prefix/criu"

# Into a folder and not into the system: libraries and tools that only the build needs are gone after it.
# $1: the folder; the rest: packages. Those that the system has are not fetched.
unpack_packages() {
    local root=$1 archives=$work/archives package
    shift
    mkdir -p "$archives/partial" "$root"
    local fetch=(apt-get install -y -q --download-only --no-install-recommends -o "Dir::Cache::archives=$archives"
        -o APT::Sandbox::User=root "$@")
    "${fetch[@]}" >"$work/apt.log" 2>&1 || { apt-get update -q && "${fetch[@]}"; } >"$work/apt.log" 2>&1 || return 1
    for package in "$archives"/*.deb; do
        [[ ! -e $package ]] || dpkg-deb -x "$package" "$root" || return 1
    done
    rm -rf "$archives"
}

library_path() { echo "$1/usr/lib/$(uname -m)-linux-gnu:$1/lib/$(uname -m)-linux-gnu"; }

for tool in gcc make; do
    command -v $tool >/dev/null || fail "$tool is missing, to build CRIU $version: run scripts/install_deps.sh"
done

# From the pool of the mirror that this machine uses, by way of apt and its settings; or as sid's source, wherever that
# mirror keeps it.
fetch_source() {
    local to=$1 mirror lists=$work/lists
    if [[ -n ${CRIU_TARBALL-} ]]; then
        cp -- "$CRIU_TARBALL" "$to/$tarball_name" || fail "cannot read CRIU_TARBALL=$CRIU_TARBALL"
        return
    fi
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
        awk -v release="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$2 == release { print $1; exit }')
    mirror=${mirror:-http://deb.debian.org/debian/}
    if /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "${mirror%/}/pool/main/c/criu/$tarball_name" \
        "$to/$tarball_name" "SHA256:$sha256" >"$work/apt.log" 2>&1; then return; fi
    mkdir -p "$lists/partial"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$work/sid.list"
    local private=(-q -o "Dir::Etc::sourcelist=$work/sid.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::Lists=$lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root)
    { apt-get "${private[@]}" update && cd "$to" && apt-get "${private[@]}" source --download-only --tar-only criu; } \
        >"$work/apt.log" 2>&1 || true
    [[ -e $to/$tarball_name ]] ||
        fail "$tarball_name could not be fetched from $mirror ($(tail -n 1 "$work/apt.log")); give it as CRIU_TARBALL"
}

say "building CRIU $version (half a minute)"
tools=$work/tools
unpack_packages "$tools" pkg-config xz-utils patch libprotobuf-dev libprotobuf-c-dev protobuf-c-compiler \
    protobuf-compiler libnl-3-dev libcap-dev libnet1-dev uuid-dev ||
    fail "what CRIU is built with could not be fetched: $(tail -n 1 "$work/apt.log")"
fetch_source "$work"
echo "$sha256  $work/$tarball_name" | sha256sum --check --quiet --status ||
    fail "$tarball_name is not the one that is known: its SHA-256 is not $sha256"
mkdir "$work/source" "$work/bin"
# protoc is told of the system's folder by criu's makefiles: it is to find the unpacked one, too.
cat >"$work/bin/protoc" <<TEXT
#!/bin/sh
exec env LD_LIBRARY_PATH=$(library_path "$tools") "\$(PATH=$tools/usr/bin:/usr/bin:/bin command -v protoc)" \\
    --proto_path=$tools/usr/include "\$@"
TEXT
chmod 755 "$work/bin/protoc"
export PATH=$work/bin:$tools/usr/bin:$PATH
tar -xf "$work/$tarball_name" -C "$work/source" --strip-components=1
cd "$work/source"
patch -p1 --quiet <"$patches/watched.patch" || fail "watched.patch does not apply to CRIU $version"
# Bit 24: CAP_SYS_RESOURCE.
if (((16#$(sed -n 's/^CapEff:\t//p' /proc/self/status) >> 24 & 1) == 0)); then
    patch -p1 --quiet <"$patches/rlimits.patch" || fail "rlimits.patch does not apply to CRIU $version"
fi
# Static: it runs inside the container, whose files are the server's. Without what only its optional parts need,
# and so the same whatever this machine has installed. What it keeps of the kernel's features is in a folder that it is
# given at descriptor 5 (checkpoint/crane_criu_main.cpp): in the container's /run it would be the server's to write.
headers=/usr/include
[[ ! -d $tools/usr/include/google ]] || headers=$tools/usr/include
nl=/usr/include/libnl3
[[ ! -d $tools$nl ]] || nl=$tools$nl
CPATH=$tools/usr/include:$nl LIBRARY_PATH=$(library_path "$tools") LDFLAGS=-static \
    make -j"$(nproc)" criu RUNDIR=/proc/self/fd/5 PKG_CONFIG=false NO_GNUTLS=1 FEATURE_TEST_LIBBSD_DEV='\#error' \
    GOOGLE_INCLUDE="$headers/google/protobuf" >"$work/build.log" 2>&1 ||
    { tail -n 20 "$work/build.log" >&2 && fail "CRIU $version could not be built"; }
cd /
strip "$work/source/criu/criu"
why=$(try_criu "$work/source/criu/criu") || fail "CRIU $version does not work on this kernel: $why"
mkdir -p "$prefix"
install -m 644 "$work/source/COPYING" "$prefix/COPYING"
install -m 755 "$work/source/criu/criu" "$prefix/criu.new"
mv -f "$prefix/criu.new" "$prefix/criu"
echo "$recipe" >"$prefix/recipe"
say "installed $prefix/criu ($(version_of "$prefix/criu"))"
