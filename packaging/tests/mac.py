"""A small Mac for the probes: Homebrew, launchd, the Keychain and the app as far as a probe looks at them, all of it in
one folder. First argument: the tool's name. What goes wrong in it is named in WRONG, separated by commas."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

tool, *arguments = sys.argv[1:]
HOME = Path(os.environ["HOME"])
STATE = Path(os.environ["STATE"])
WRONG = os.environ.get("WRONG", "").split(",")
APP = Path(os.environ["APPLICATIONS"], "Claude Proxy Router.app")
ID = "io.github.choiyounggi.claude-proxy-router"
PLIST = HOME / f"Library/LaunchAgents/{ID}.plist"
COMMAND = Path(os.environ["FAKES"], "claude-proxy-router")


def is_set(name):
    return (STATE / name).exists()


def set_(name, text=""):
    (STATE / name).write_text(str(text))


def unset(*names):
    for name in names:
        (STATE / name).unlink(missing_ok=True)


def serves():
    return is_set("app") or is_set("service") or agent() is not None


def agent():
    """The agent's process, which launchd starts anew after a crash."""
    if not is_set("agent"):
        return None
    pid = (STATE / "agent").read_text()
    # One that has ended and that nobody asked about is listed too, with a Z.
    alive = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()
    if alive and not alive.startswith("Z"):
        return pid
    return None if "no restart" in WRONG else start_agent()


def start_agent():
    # With no part in the pipes of whoever waits for the probe's end.
    process = subprocess.Popen(["/bin/sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    set_("agent", process.pid)
    with (STATE / "children").open("a") as children:
        children.write(f"{process.pid}\n")
    return process.pid


def brew():
    verb = arguments[0]
    if verb == "--repository":
        print(STATE / "tap")
    elif verb == "tap-new":
        (STATE / "tap").mkdir()
    elif arguments[:2] == ["install", "--cask"]:
        (APP / "Contents/MacOS").mkdir(parents=True)
        (APP / "Contents/MacOS/claude-proxy-router").symlink_to(COMMAND)
        (HOME / "Library/Application Support/claude-proxy-router").mkdir(parents=True)
    elif arguments[:2] == ["list", "--cask"]:
        print("claude-proxy-router 0.1.0")
    elif arguments[:3] == ["uninstall", "--cask", "--zap"]:
        unset("app")
        (APP / "Contents/MacOS/claude-proxy-router").unlink()
        for folder in [APP / "Contents/MacOS", APP / "Contents", APP]:
            folder.rmdir()
        if "leftover" not in WRONG:
            (HOME / "Library/Application Support/claude-proxy-router").rmdir()
        if "greedy" in WRONG:
            (HOME / ".claude/.credentials.json").unlink()
    elif arguments[:2] == ["services", "start"]:
        set_("service")
    elif arguments[:2] == ["services", "stop"]:
        unset("service")


def command():
    verb = arguments[2] if arguments[0] == "--config" else arguments[0]
    if verb == "--version":
        print("claude-proxy-router 0.1.0")
    elif verb == "install":
        PLIST.parent.mkdir(parents=True, exist_ok=True)
        PLIST.write_text("<plist/>")
        start_agent()
    elif verb == "stop" and "comes back" not in WRONG:
        unset("agent")
    elif verb == "uninstall":
        unset("agent")
        PLIST.unlink()
    elif verb in ("sandbox", "start"):
        print("sk-ant-oat01-sandbox-work" if "talks" in WRONG else "started", flush=True)
        if verb == "start":
            set_("service")
        os.execv("/bin/sleep", ["sleep", "300"])


def security():
    verb = arguments[0]
    if verb == "default-keychain" and "-s" not in arguments:
        print('    "/Users/me/Library/Keychains/login.keychain-db"')
    elif verb == "add-generic-password":
        set_("item", arguments[arguments.index("-w") + 1])
    elif verb == "find-generic-password":
        if not is_set("item"):
            sys.exit(44)
        if "-w" in arguments:
            print(item())
    elif verb in ("create-keychain", "delete-keychain"):
        set_(verb)


def item():
    """What the item holds; a login that has ended is renewed by the time somebody looks."""
    held = json.loads((STATE / "item").read_text())
    login = held["claudeAiOauth"]
    if login["expiresAt"] < time.time() * 1000 and "no renewal" not in WRONG:
        login["accessToken"] += "-1"
        if "forgets" in WRONG:
            del held["mcpOAuth"]
    return json.dumps(held, separators=(",", ":"))


def main():
    if tool == "uname":
        print("Darwin")
    elif tool == "brew":
        brew()
    elif tool == "claude-proxy-router":
        command()
    elif tool == "curl":
        if not serves():
            sys.exit(7)
        print("ok", end="")
    elif tool == "launchctl":
        if not is_set("agent"):
            sys.exit(113)
        pid = agent()
        if pid is not None:
            print(f"\tpid = {pid}")
    elif tool == "open":
        set_("app")
    elif tool == "osascript" and "does not quit" not in WRONG:
        unset("app")
    elif tool == "pgrep":
        if not is_set("app"):
            sys.exit(1)
        print("4711\n4712" if "two" in WRONG else "4711")
    elif tool == "lsappinfo":
        print('"ApplicationType"="Foreground"' if "dock" in WRONG else '"ApplicationType"="UIElement"')
    elif tool == "security":
        security()


main()
