# The version here is the workspace's. The checksum is the release's: `packaging/tap` writes both into the tap's
# copy, and until then sixty-four zeros see to it that nothing is installed from this one.
cask "claude-proxy-router" do
  version "0.1.0"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"

  url "https://github.com/choiyounggi/claude-proxy-router/releases/download/v#{version}/Claude-Proxy-Router-#{version}-universal.dmg"
  name "Claude Proxy Router"
  desc "Routes Claude Code among your own Claude accounts, from the menu bar"
  homepage "https://github.com/choiyounggi/claude-proxy-router"

  livecheck do
    url :url
    strategy :github_latest
  end

  depends_on macos: :ventura

  app "Claude Proxy Router.app"
  binary "#{appdir}/Claude Proxy Router.app/Contents/MacOS/claude-proxy-router"

  # The agent is the one that `claude-proxy-router install` makes. It goes first, or it would start again what is quit.
  uninstall launchctl:  "io.github.choiyounggi.claude-proxy-router",
            quit:       "io.github.choiyounggi.claude-proxy-router",
            on_upgrade: :quit

  # Only what the router made. Claude's logins, in the Keychain and in ~/.claude, are Claude's.
  zap trash: [
    "~/Library/Application Support/claude-proxy-router",
    "~/Library/Caches/io.github.choiyounggi.claude-proxy-router",
    "~/Library/HTTPStorages/io.github.choiyounggi.claude-proxy-router",
    "~/Library/Logs/claude-proxy-router",
    "~/Library/Preferences/io.github.choiyounggi.claude-proxy-router.plist",
    "~/Library/Saved Application State/io.github.choiyounggi.claude-proxy-router.savedState",
    "~/Library/WebKit/io.github.choiyounggi.claude-proxy-router",
  ]

  caveats <<~EOS
    One router runs for each settings file: this app, or the service of the formula of the same name.
    For a Mac that nobody sits at, take the formula.

    Removing the app, with --zap too, leaves your Claude logins as they are.
  EOS
end
