#!/bin/sh
# Unpacks Debian packages into a directory: of this release, or else of its backports. The machine's
# own sources, lists and packages stay as they are, and nobody has to be root.
#
# usage: unpack.sh DIRECTORY PACKAGE…
set -eu
to=$1
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$to" "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $release" | head -n 1)
test -n "$mirror" || { echo "apt knows no mirror of Debian $release" >&2; exit 1; }

key=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in "$release" "$release-backports"; do
    echo "deb [signed-by=$key] $mirror $suite main" >> "$work/parts/unpack.list"
done
cat > "$work/apt.conf" <<END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$work/parts";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "";
END
export APT_CONFIG="$work/apt.conf"
apt-get --quiet=2 update
cd "$work"
apt-get --quiet=2 download "$@"
for package in *.deb; do
    dpkg-deb --extract "$package" "$to"
done
