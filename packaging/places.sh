# shellcheck shell=sh disable=SC2034
# Sourced by the scripts beside it: the names that a release goes by, and where its pieces lie.

. "$(dirname "$0")/../scripts/places.sh"
cd "$root" || exit

name="Claude Proxy Router"
command=claude-proxy-router
identifier=io.github.choiyounggi.claude-proxy-router
version=$(packaging/version)

# Everything that a release is made of; a new build begins with an empty one.
dist=${DIST:-$cache/dist}
app=$dist/$name.app
dmg=$dist/Claude-Proxy-Router-$version-universal.dmg
# How the app was signed: `ad-hoc` or `developer-id`. It decides what the release says of itself.
signing=$dist/signing
# The keychain that holds the certificate while a release is signed, and no longer.
keychain=$dist/release.keychain-db

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
stop() { say "$*"; exit 1; }
on_a_mac() { [ "$(uname)" = Darwin ] || stop "this needs a Mac"; }

# try TIMES COMMAND…: for tools that fail when another process looks at the same file, or the network does.
try() {
  times=$1
  shift
  until "$@"; do
    times=$((times - 1))
    [ "$times" -gt 0 ] || return 1
    say "once more: $1"
    sleep "${PAUSE:-10}"
  done
}
