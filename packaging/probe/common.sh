# shellcheck shell=sh disable=SC2034
# Sourced by the probes: they install, start and remove the router as the user who runs them, and so only on a machine
# that is thrown away.
[ "${CI:-}" = true ] || { echo "${0##*/}: for a machine that is thrown away, with CI=true" >&2; exit 64; }
[ "$(uname)" = Darwin ] || { echo "${0##*/}: this needs a Mac" >&2; exit 1; }

name="Claude Proxy Router"
identifier=io.github.choiyounggi.claude-proxy-router
applications=${APPLICATIONS:-/Applications}
ping=http://127.0.0.1:18787/_router/ping

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
stop() { say "$*"; exit 1; }

# until_true SECONDS WHAT COMMAND…: looks once a second, or PATIENCE times.
until_true() {
  left=${PATIENCE:-$1} what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || stop "not so in time: $what"
    sleep 1
  done
  say "$what"
}
answers() { [ "$(curl --silent --max-time 2 "$ping")" = ok ]; }
silent() { ! answers; }
gone() { ! [ -e "$1" ] && ! [ -L "$1" ]; }
