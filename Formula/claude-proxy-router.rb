# The version here is the workspace's. The checksum is the release's: `packaging/tap` writes both into the tap's
# copy, and until then sixty-four zeros see to it that nothing is installed from this one.
class ClaudeProxyRouter < Formula
  desc "Routes Claude Code among your own Claude accounts, without a screen"
  homepage "https://github.com/choiyounggi/claude-proxy-router"
  url "https://github.com/choiyounggi/claude-proxy-router/releases/download/v0.1.0/claude-proxy-router-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "MIT"
  head "https://github.com/choiyounggi/claude-proxy-router.git", branch: "main"

  livecheck do
    url :stable
    strategy :github_latest
  end

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/cli")
  end

  # `claude-proxy-router stop`, and a start where another router runs, end with 0 and stay ended.
  service do
    # It puts its own log aside when that is long; what is printed before there is one is a few lines a start.
    run [opt_bin/"claude-proxy-router", "start", "--log", var/"log/claude-proxy-router.log"]
    keep_alive successful_exit: false
    log_path var/"log/claude-proxy-router-output.log"
    error_log_path var/"log/claude-proxy-router-output.log"
  end

  def caveats
    <<~EOS
      This takes the place of the earlier Node tool of the same name, with its settings and its key.

      One router runs for each settings file: this command, or the app of the cask of the same name.
      To have the system start it: claude-proxy-router install, or brew services. The first leaves it
      a minute to end, so that a login that is being renewed is saved.

      Over SSH, and while nobody is logged in at its screen, a Mac keeps its Keychain closed; logins kept there
      are read once somebody has logged in.
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/claude-proxy-router --version")

    # Three made-up seats and a pretended Anthropic, all of it on loopback.
    port = free_port
    router = spawn bin/"claude-proxy-router", "start", "--sandbox", "--port", port.to_s
    begin
      ping = "curl --silent --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:#{port}/_router/ping"
      assert_match "ok", shell_output(ping)
    ensure
      Process.kill "TERM", router
      Process.wait router
    end
  end
end
