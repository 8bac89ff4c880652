#!/bin/bash
# Makes the Debian packages crane and crane-dbgsym of this tree, and has lintian look at them. What stands in BUILD/ already
# is used: nothing is compiled twice.
#
#   make_deb.sh BUILD [OPT]      the packages are in BUILD/deb
#   CRANE_DEB_REVISION=+2        appended to the version: a later build of the same tree
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
build=$(readlink -m "$1")
opt=${2:--O2 -g}

for tool in dpkg-buildpackage dh lintian; do
    command -v "$tool" >/dev/null || { echo "make_deb: $tool is missing: run scripts/install_deps.sh --package" >&2 && exit 1; }
done
version=$(cat "$top/VERSION")
out=$build/deb
tree=$out/crane-$version
rm -rf "$tree"
mkdir -p "$tree"
# Times are kept: what is compiled is older than none of its sources. Authorities' keys and images may lie in the tree.
(cd "$top" && tar -c --exclude='./build*' --exclude=./.git --exclude={crane-secrets,crane-images,crane-results} --exclude='__pycache__' .) | tar -x -C "$tree"
cp -a "$here/debian" "$tree/debian"
ln -s "$build" "$tree/build"
stamp=$(git -C "$top" log -1 --format=%ct 2>/dev/null || stat -c %Y "$top/VERSION")
cat >"$tree/debian/changelog" <<TEXT
crane ($version${CRANE_DEB_REVISION-}) unstable; urgency=medium

  * Version $version of the source, with whatever is in its tree.

 -- Crane <crane@crane.invalid>  $(date -u -R -d "@$stamp")
TEXT
log=$out/build.log
(cd "$tree" && SOURCE_DATE_EPOCH=$stamp OPT="$opt" CXX="${CXX:-g++}" \
    dpkg-buildpackage -b -us -uc -rfakeroot -j"$(nproc)") >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2 && echo "make_deb: the package could not be built; the whole log is $log" >&2 && exit 1; }
rm -rf "$tree"
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$out/crane_$version${CRANE_DEB_REVISION-}_amd64.changes"
ls -1 "$out/crane_$version${CRANE_DEB_REVISION-}_amd64.deb" "$out/crane-dbgsym_$version${CRANE_DEB_REVISION-}_amd64.deb"
