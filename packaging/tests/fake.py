"""Stands in for the tools that only a Mac has: its first argument is the name of the one. It writes down how it was called, does as much of
the work as the next step of a release needs to find, and answers as the test has told it to.

CALLS names the file that calls are appended to, as JSON lines. ANSWERS is JSON: for a tool, a list of answers, each for
the calls whose arguments hold all of `to`, and each used up by one call unless it is the last of its kind.
"""

import json
import os
import plistlib
import shutil
import sys
from pathlib import Path

NAME = "Claude Proxy Router"
tool, *arguments = sys.argv[1:]
calls = Path(os.environ["CALLS"])


def earlier_with(wanted):
    lines = calls.read_text().splitlines() if calls.exists() else []
    seen = [json.loads(line) for line in lines]
    return sum(call["tool"] == tool and set(wanted) <= set(call["arguments"]) for call in seen)


def told():
    """The answer for this call, if the test gave one."""
    for answer in json.loads(os.environ.get("ANSWERS", "{}")).get(tool, []):
        if set(answer["to"]) <= set(arguments):
            turns = answer["turns"]
            return turns[min(earlier_with(answer["to"]), len(turns) - 1)]
    return None


def after(flag):
    return arguments[arguments.index(flag) + 1]


def make_file(path, text):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def bundle():
    """What the bundler leaves behind: the app under the target folder, the command within it."""
    settings = [arguments[i + 1] for i, a in enumerate(arguments) if a == "--config"]
    files, inline = json.loads(Path(settings[0]).read_text()), json.loads(settings[1])
    contents = Path(os.environ["CARGO_TARGET_DIR"], "universal-apple-darwin/release/bundle/macos", f"{NAME}.app/Contents")
    make_file(contents / "MacOS" / NAME, "app")
    for sidecar in inline["bundle"]["externalBin"]:
        shutil.copy(f"{sidecar}-universal-apple-darwin", contents / "MacOS" / Path(sidecar).name)
    # Paths in its settings are relative to the folder of its own configuration.
    info = plistlib.loads(Path("src-tauri", files["bundle"]["macOS"]["infoPlist"]).resolve().read_bytes())
    info["CFBundleShortVersionString"] = os.environ.get("BUILT_VERSION") or os.environ["VERSION"]
    (contents / "Info.plist").write_bytes(plistlib.dumps(info))
    for inside, source in files["bundle"]["macOS"]["files"].items():
        make_file(contents / inside, Path("src-tauri", source).resolve().read_text())


def extract():
    data = Path(arguments[-1]).read_bytes()
    document = plistlib.loads(data) if data.lstrip().startswith(b"<?xml") else json.loads(data or b"{}")
    if arguments[1] not in document:
        print("Could not extract value, error: No value at that key path")
        sys.exit(1)
    print(document[arguments[1]])


def work():
    """What the tool does, as far as a later step looks at it. A Mac's own Python knows no `match`."""
    verb, last = (arguments or [""])[0], (arguments or [""])[-1]
    if tool == "uname":
        print({"-sm": "Darwin arm64", "-m": "arm64"}.get(verb, os.environ.get("SYSTEM", "Darwin")))
    elif tool == "cargo":
        release = Path(os.environ["CARGO_TARGET_DIR"], after("--target"), "release")
        make_file(release / "claude-proxy-router", after("--target"))
    elif tool == "tauri":
        bundle()
    elif tool == "lipo" and verb == "-create":
        make_file(arguments[2], "+".join(Path(part).read_text() for part in arguments[3:]))
    elif tool == "ditto" and verb == "-c":
        make_file(last, arguments[-2])
    elif tool == "ditto":
        shutil.copytree(verb, last)
    elif tool == "hdiutil" and verb == "create":
        make_file(last, "image")
    elif tool == "security" and verb == "create-keychain":
        make_file(last, "keychain")
    elif tool == "security" and verb == "delete-keychain":
        Path(last).unlink()
    elif tool == "security" and arguments == ["list-keychains", "-d", "user"]:
        print('    "/Users/me/Library/Keychains/login.keychain-db"\n    "/Users/me/My Keys.keychain-db"')
    elif tool == "openssl":
        print("0123456789abcdef")
    elif tool == "plutil" and verb == "-extract":
        extract()


answer = told()
known = {"tool": tool, "arguments": arguments}
if tool == "tauri":
    known["apple"] = sorted(key for key in os.environ if key.startswith("APPLE_"))
if tool == "security" and "import" in arguments:
    known["certificate"] = Path(arguments[1]).read_text()
if tool == "xcrun" and "--key" in arguments:
    known["key"] = Path(after("--key")).read_text()
with calls.open("a") as log:
    log.write(json.dumps(known) + "\n")
if answer is None:
    work()
else:
    sys.stdout.write(answer.get("says", ""))
    if not answer.get("exit"):
        work()
    sys.exit(answer.get("exit", 0))
