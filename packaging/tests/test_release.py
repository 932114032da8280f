"""The release's scripts, run with `fake.py` in place of a Mac's tools: which tool is called, how, in which order, and what
a failure of one leads to. What only a Mac can show is on `macos-checklist.md` and in the macOS workflow."""

import base64
import hashlib
import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKES = ["uname", "cargo", "lipo", "ditto", "plutil", "codesign", "hdiutil", "security", "spctl", "xcrun", "openssl"]
VERSION = "0.1.0"
IDENTIFIER = "io.github.choiyounggi.claude-proxy-router"
CERTIFICATE = base64.b64encode(b"made-up certificate 4f1c").decode()
SECRETS = {
    "SIGNING_CERTIFICATE": CERTIFICATE,
    "SIGNING_PASSWORD": "made-up password",
    "SIGNING_IDENTITY": "Developer ID Application: Nobody (TEAM000000)",
    "NOTARY_KEY": "made-up key 4f1c",
    "NOTARY_KEY_ID": "KEY0000000",
    "NOTARY_ISSUER": "00000000-0000-0000-0000-000000000000",
}
TAKEN = {"to": ["notarytool", "submit"], "turns": [{"says": '{"id":"one"}'}]}


def said(status):
    return {"to": ["notarytool", "wait"], "turns": [{"says": json.dumps({"id": "one", "status": status})}]}


class Release(unittest.TestCase):
    """A copy of what the scripts read, a folder for what they make, and the fakes before all else on the PATH."""

    def setUp(self):
        self.here = Path(tempfile.mkdtemp(prefix="a release "))  # with a space, as on many a Mac
        self.addCleanup(shutil.rmtree, self.here)
        self.tree, self.dist, self.calls_file = self.here / "tree", self.here / "dist", self.here / "calls"
        self.temporary = self.here / "tmp"
        self.temporary.mkdir()
        for part in ["scripts", "packaging", "Casks", "Formula", "tests/claude-code", "src-tauri/tauri.conf.json",
                     "ui/package.json", "Cargo.toml", "CHANGELOG.md", "README.md", "PROTOCOL.md", "LICENSE"]:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, self.tree / part)
            elif (ROOT / part).exists():
                (self.tree / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / part, self.tree / part)
        (self.tree / "src-tauri").mkdir(exist_ok=True)
        self.script(self.tree / "scripts/ui", "exit 0")
        # Whatever the workspace's version is today, here it is this one.
        self.edit("Cargo.toml", r'(\[workspace\.package\]\nversion = )"[^"]*"', rf'\1"{VERSION}"')
        self.edit("Casks/claude-proxy-router.rb", r'^  version ".*"', f'  version "{VERSION}"')
        self.edit("Formula/claude-proxy-router.rb", r"v[0-9.]+/claude-proxy-router-[0-9.]+\.tar", f"v{VERSION}/claude-proxy-router-{VERSION}.tar")
        for file in ["src-tauri/tauri.conf.json", "ui/package.json"]:
            if (self.tree / file).exists():
                self.edit(file, r'^  "version": *"[^"]*"', f'  "version": "{VERSION}"')

        self.bin = self.here / "bin"
        bundler = self.here / "cache/claude-proxy-router/bundler/node_modules/.bin/tauri"
        for fake in [*(self.bin / name for name in FAKES), bundler]:
            fake.parent.mkdir(parents=True, exist_ok=True)
            self.script(fake, f'exec "{sys.executable}" -IS "{ROOT}/packaging/tests/fake.py" {fake.name} "$@"')

    @staticmethod
    def script(path, body):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def edit(self, file, pattern, to):
        text, count = re.subn(pattern, to, (self.tree / file).read_text(), flags=re.MULTILINE)
        self.assertEqual(count, 1, f"{pattern} in {file}")
        (self.tree / file).write_text(text)

    def run_script(self, *command, answers=None, **environment):
        return subprocess.run(
            [self.tree / "packaging" / command[0], *map(str, command[1:])],
            env={"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.here), "XDG_CACHE_HOME": str(self.here / "cache"),
                 "TMPDIR": str(self.temporary),
                 "DIST": str(self.dist), "CALLS": str(self.calls_file), "ANSWERS": json.dumps(answers or {}),
                 "VERSION": VERSION, "PAUSE": "0", **environment},
            capture_output=True, text=True, timeout=120)

    def succeed(self, *command, **more):
        ran = self.run_script(*command, **more)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def fail_with(self, words, *command, **more):
        ran = self.run_script(*command, **more)
        self.assertNotEqual(ran.returncode, 0, ran.stdout)
        self.assertIn(words, ran.stderr)

    def calls(self, tool=None, *holding):
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        calls = [json.loads(line) for line in lines]
        return [call for call in calls if tool in (None, call["tool"]) and set(holding) <= set(call["arguments"])]

    def order(self):
        """The calls that make a release what it is, each as its tool and what it did."""
        told = {"codesign": "--sign", "security": None, "hdiutil": "create", "xcrun": None, "spctl": None, "tauri": "build"}
        return [" ".join([call["tool"], *call["arguments"][:2]]) if call["tool"] in ("xcrun", "spctl")
                else " ".join([call["tool"], call["arguments"][0] if call["tool"] != "codesign" else Path(call["arguments"][-1]).name])
                for call in self.calls() if call["tool"] in told
                and (told[call["tool"]] is None or told[call["tool"]] in call["arguments"])]


class TheApp(Release):
    def test_it_is_built_for_both_processors_with_the_command_inside(self):
        self.succeed("app")
        inside = self.dist / "Claude Proxy Router.app/Contents/MacOS"
        self.assertEqual((inside / "claude-proxy-router").read_text(), "aarch64-apple-darwin+x86_64-apple-darwin")
        verified = [call["arguments"][0] for call in self.calls("lipo", "-verify_arch", "arm64", "x86_64")]
        self.assertEqual(verified, [str(inside / "Claude Proxy Router"), str(inside / "claude-proxy-router")])

    def test_its_info_says_what_macos_must_know_before_it_runs(self):
        self.succeed("app")
        contents = self.dist / "Claude Proxy Router.app/Contents"
        info = plistlib.loads((contents / "Info.plist").read_bytes())
        self.assertIs(info["LSUIElement"], True)
        self.assertIs(info["NSSupportsAutomaticTermination"], False)
        self.assertIs(info["NSSupportsSuddenTermination"], False)
        self.assertTrue(info["NSLocalNetworkUsageDescription"])
        for language in info["CFBundleLocalizations"]:
            if language != info["CFBundleDevelopmentRegion"]:
                words = (contents / f"Resources/{language}.lproj/InfoPlist.strings").read_text()
                self.assertIn('"NSLocalNetworkUsageDescription" = "', words)

    def test_the_bundler_cannot_sign_or_notarise_by_itself(self):
        self.succeed("app", APPLE_ID="someone", APPLE_SIGNING_IDENTITY="x", APPLE_API_KEY="y")
        [call] = self.calls("tauri", "--no-sign")
        self.assertEqual(call["apple"], [])

    def test_an_app_of_another_version_is_refused(self):
        self.fail_with("the app calls itself 0.0.9, not 0.1.0", "app", BUILT_VERSION="0.0.9")

    def test_elsewhere_than_on_a_mac_it_says_so(self):
        self.fail_with("this needs a Mac", "app", SYSTEM="Linux")


class ARelease(Release):
    def test_without_secrets_it_is_ad_hoc_and_says_so(self):
        self.succeed("macos")
        self.assertEqual(self.order(), [
            "tauri build", "codesign claude-proxy-router", "codesign Claude Proxy Router.app", "hdiutil create"])
        for call in self.calls("codesign", "--sign"):
            self.assertEqual(call["arguments"][call["arguments"].index("--sign") + 1], "-")
            self.assertIn("runtime", call["arguments"])
        self.assertEqual((self.dist / "signing").read_text(), "ad-hoc\n")

    def test_with_secrets_app_and_image_are_signed_looked_at_and_stapled_and_the_keychain_goes(self):
        self.succeed("macos", answers={"xcrun": [TAKEN, said("Accepted")]}, **SECRETS)
        image = f"Claude-Proxy-Router-{VERSION}-universal.dmg"
        apple = ["xcrun notarytool submit", "xcrun notarytool wait", "xcrun stapler staple", "xcrun stapler validate"]
        self.assertEqual(self.order(), [
            "tauri build",
            "security create-keychain", "security set-keychain-settings", "security unlock-keychain", "security import",
            "security set-key-partition-list", "security list-keychains", "security list-keychains",
            "codesign claude-proxy-router", "codesign Claude Proxy Router.app", *apple,
            "hdiutil create", f"codesign {image}", *apple,
            "spctl --assess --type", "spctl --assess --type",
            "security delete-keychain"])
        for call in self.calls("codesign", "--sign"):
            self.assertIn(SECRETS["SIGNING_IDENTITY"], call["arguments"])
            self.assertIn("--timestamp", call["arguments"])
        self.assertEqual((self.dist / "signing").read_text(), "developer-id\n")

    def test_the_certificate_and_the_key_lie_nowhere_afterwards(self):
        self.succeed("macos", answers={"xcrun": [TAKEN, said("Accepted")]}, **SECRETS)
        [imported] = self.calls("security", "import")
        self.assertEqual(imported["certificate"], "made-up certificate 4f1c")
        keys = {call["key"] for call in self.calls("xcrun", "notarytool")}
        self.assertEqual(keys, {"made-up key 4f1c"})
        for path in self.here.rglob("*"):
            if path.is_file() and path != self.calls_file and self.tree not in path.parents:
                self.assertNotIn(b"4f1c", path.read_bytes(), path)

    def test_the_users_own_keychains_stay_in_the_list(self):
        self.succeed("macos", answers={"xcrun": [TAKEN, said("Accepted")]}, **SECRETS)
        [call] = self.calls("security", "list-keychains", "-s")
        self.assertEqual(call["arguments"][4:], [
            str(self.dist / "release.keychain-db"),
            "/Users/me/Library/Keychains/login.keychain-db", "/Users/me/My Keys.keychain-db"])

    def test_half_of_the_secrets_stop_it_before_the_build(self):
        self.fail_with("NOTARY_KEY", "macos", **{k: v for k, v in SECRETS.items() if k != "NOTARY_KEY"})
        self.assertEqual(self.calls("cargo"), [])

    def test_a_failed_signature_takes_the_keychain_away_all_the_same(self):
        self.fail_with("", "macos", answers={"codesign": [{"to": ["--sign"], "turns": [{"exit": 1}]}]}, **SECRETS)
        self.assertEqual(len(self.calls("security", "delete-keychain")), 1)
        self.assertEqual(self.calls("xcrun"), [])
        self.assertEqual(self.calls("hdiutil"), [])


class ApplesLook(Release):
    def setUp(self):
        super().setUp()
        self.dist.mkdir()
        (self.dist / f"Claude-Proxy-Router-{VERSION}-universal.dmg").write_text("image")

    def test_an_upload_is_tried_three_times_and_the_wait_is_limited(self):
        fails = {"to": ["notarytool", "submit"], "turns": [{"exit": 1}, {"exit": 1}, {"says": '{"id":"one"}'}]}
        self.succeed("notarise", "dmg", answers={"xcrun": [fails, said("Accepted")]}, **SECRETS)
        self.assertEqual(len(self.calls("xcrun", "submit")), 3)
        [wait] = self.calls("xcrun", "wait")
        self.assertEqual(wait["arguments"][2:5], ["one", "--timeout", "30m"])

    def test_a_fourth_upload_is_not_tried(self):
        fails = {"to": ["notarytool", "submit"], "turns": [{"exit": 1}]}
        self.fail_with("Apple did not take dmg in", "notarise", "dmg", answers={"xcrun": [fails]}, **SECRETS)
        self.assertEqual(len(self.calls("xcrun", "submit")), 3)

    def test_a_refusal_shows_apples_reasons_and_staples_nothing(self):
        log = {"to": ["notarytool", "log"], "turns": [{"says": "the reasons"}]}
        self.fail_with("Apple refused dmg (Invalid)", "notarise", "dmg", answers={"xcrun": [TAKEN, said("Invalid"), log]}, **SECRETS)
        self.assertEqual(len(self.calls("xcrun", "log")), 1)
        self.assertEqual(self.calls("xcrun", "staple"), [])

    def test_no_verdict_in_time_is_a_failure_that_names_the_submission(self):
        cases = [("In Progress", {"says": '{"id":"one","status":"In Progress"}'}), ("no answer", {"exit": 1})]
        for words, turn in cases:
            with self.subTest(words):
                wait = {"to": ["notarytool", "wait"], "turns": [turn]}
                self.fail_with(words, "notarise", "dmg", answers={"xcrun": [TAKEN, wait]}, **SECRETS)
        self.assertEqual(self.calls("xcrun", "staple"), [])

    def test_an_upload_without_a_number_is_a_failure(self):
        nameless = {"to": ["notarytool", "submit"], "turns": [{"says": "{}"}]}
        self.fail_with("Apple gave no number", "notarise", "dmg", answers={"xcrun": [nameless]}, **SECRETS)
        self.assertEqual(self.calls("xcrun", "wait"), [])


class TheImage(Release):
    def test_a_busy_image_is_tried_again(self):
        self.succeed("app")
        busy = {"to": ["create"], "turns": [{"exit": 16}, {}]}
        self.succeed("dmg", answers={"hdiutil": [busy]})
        self.assertEqual(len(self.calls("hdiutil", "create")), 2)
        self.assertEqual(len(self.calls("hdiutil", "verify")), 1)


class TheVersion(Release):
    def test_it_stands_in_several_places_and_is_one(self):
        self.assertEqual(self.succeed("version"), f"{VERSION}\n")

    def test_a_place_that_differs_is_named(self):
        changes = [
            ("Casks/claude-proxy-router.rb", r'^  version ".*"', '  version "0.2.0"', "Casks"),
            ("Formula/claude-proxy-router.rb", r"/v[0-9.]+/", "/v0.2.0/", "Formula"),
        ]
        for file, pattern, to, named in changes:
            with self.subTest(file):
                before = (self.tree / file).read_text()
                self.edit(file, pattern, to)
                self.fail_with(named, "version")
                (self.tree / file).write_text(before)
        for file in ["src-tauri/tauri.conf.json", "ui/package.json"]:
            with self.subTest(file):
                (self.tree / file).parent.mkdir(exist_ok=True)
                (self.tree / file).write_text('{\n  "version": "0.2.0"\n}\n')
                self.fail_with(f"{file} says 0.2.0", "version")
                (self.tree / file).write_text("{\n}\n")

    def test_a_release_wants_its_tag_and_its_section_of_the_changelog(self):
        (self.tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased\n\n## {VERSION} – 2026-12-01\n\n- All of it.\n")
        self.assertEqual(self.succeed("version", "--release", f"v{VERSION}"), f"{VERSION}\n")
        self.fail_with("the tag says 0.1.1", "version", "--release", "v0.1.1")
        (self.tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- All of it.\n")
        self.fail_with("CHANGELOG.md says nothing", "version", "--release", f"v{VERSION}")


class WhatIsPublished(Release):
    def release(self, signing):
        self.dist.mkdir()
        for file in [f"Claude-Proxy-Router-{VERSION}-universal.dmg", f"claude-proxy-router-{VERSION}.tar.gz",
                     f"claude-proxy-router-{VERSION}-linux-x86_64.tar.gz", "command.cdx.json"]:
            (self.dist / file).write_text(file)
        (self.dist / "signing").write_text(signing + "\n")
        self.succeed("sums")
        self.tap = self.here / "tap"
        self.tap.mkdir()

    def test_the_checksums_are_those_of_the_files(self):
        self.release("developer-id")
        for line in (self.dist / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split("  ")
            self.assertEqual(digest, hashlib.sha256((self.dist / name).read_bytes()).hexdigest())

    def test_a_missing_file_is_no_release(self):
        self.dist.mkdir()
        self.fail_with("no *.dmg", "sums")

    def written(self):
        return [(self.tap / file).read_text() for file in ["Casks/claude-proxy-router.rb", "Formula/claude-proxy-router.rb"]]

    def test_the_tap_gets_the_release_and_its_checksums(self):
        self.release("developer-id")
        self.succeed("tap", self.tap)
        cask, formula = self.written()
        for text, first, file in [(cask, "cask ", f"Claude-Proxy-Router-{VERSION}-universal.dmg"),
                                  (formula, "class ", f"claude-proxy-router-{VERSION}.tar.gz")]:
            self.assertTrue(text.startswith(first), text)
            self.assertIn(f'sha256 "{hashlib.sha256(file.encode()).hexdigest()}"', text)
            self.assertNotIn("0" * 64, text)
        self.assertIn("/v#{version}/Claude-Proxy-Router-#{version}-universal.dmg", cask)
        self.assertNotIn("notarised", cask)

    def test_an_ad_hoc_release_says_in_the_cask_what_its_user_must_do(self):
        self.release("ad-hoc")
        self.succeed("tap", self.tap)
        cask, formula = self.written()
        self.assertIn("not notarised by Apple", cask)
        self.assertIn('Privacy & Security, "Open Anyway"', cask)
        self.assertNotIn("notarised", formula)
        if ruby := shutil.which("ruby"):
            subprocess.run([ruby, "-c", self.tap / "Casks/claude-proxy-router.rb"], check=True, capture_output=True)

    def test_a_try_before_publishing_takes_the_files_from_a_folder(self):
        self.release("ad-hoc")
        self.succeed("tap", self.tap, "file:///tmp/dist")
        cask, formula = self.written()
        self.assertIn('url "file:///tmp/dist/Claude-Proxy-Router-#{version}-universal.dmg"', cask)
        self.assertIn(f'url "file:///tmp/dist/claude-proxy-router-{VERSION}.tar.gz"', formula)

    def test_a_release_whose_signature_nobody_knows_is_not_written(self):
        self.release("")
        self.fail_with("neither ad-hoc nor developer-id", "tap", self.tap)

    def test_the_notes_are_this_versions_section_and_tell_how_it_is_signed(self):
        for signing, warned in [("ad-hoc", True), ("developer-id", False)]:
            with self.subTest(signing):
                shutil.rmtree(self.dist, ignore_errors=True)
                shutil.rmtree(self.here / "tap", ignore_errors=True)
                self.release(signing)
                (self.tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased\n\n- Later.\n\n## {VERSION}\n\n- This.\n\n## 0.0.9\n\n- Before.\n")
                notes = self.succeed("notes")
                self.assertIn("- This.", notes)
                self.assertNotIn("Later", notes)
                self.assertNotIn("Before", notes)
                self.assertEqual("Not notarised" in notes, warned)


class TheTap(Release):
    """`offer`, with git as it is, a tap in a folder, and the forge's own command as a fake."""

    def git(self, *arguments, cwd=None):
        # No settings but our own, and none of whoever runs the tests.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.here), "GIT_CONFIG_NOSYSTEM": "1"}
        ran = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *map(str, arguments)],
                             cwd=cwd, env=environment, capture_output=True, text=True, check=True)
        return ran.stdout

    def setUp(self):
        super().setUp()
        self.upstream, self.tap = self.here / "upstream", self.here / "tap"
        self.git("init", "--quiet", "--bare", self.upstream)
        self.git("clone", "--quiet", self.upstream, self.tap)
        (self.tap / "README.md").write_text("A tap.\n")
        self.git("add", ".", cwd=self.tap)
        self.git("commit", "--quiet", "--message", "a tap", cwd=self.tap)
        self.git("push", "--quiet", "origin", "HEAD", cwd=self.tap)
        self.script(self.bin / "gh", f'exec "{sys.executable}" -IS "{ROOT}/packaging/tests/fake.py" gh "$@"')
        (self.tap / "Casks").mkdir()
        (self.tap / "Formula").mkdir()
        (self.tap / "Casks/claude-proxy-router.rb").write_text("one\n")
        (self.tap / "Formula/claude-proxy-router.rb").write_text("one\n")

    none_yet = {"gh": [{"to": ["pr", "view"], "turns": [{"exit": 1}]}]}

    def test_a_release_is_offered_as_one_pull_request(self):
        self.succeed("offer", self.tap, answers=self.none_yet)
        [call] = self.calls("gh", "create")
        self.assertIn(f"claude-proxy-router {VERSION}", call["arguments"])
        shown = self.git("show", f"claude-proxy-router-{VERSION}:Casks/claude-proxy-router.rb", cwd=self.upstream)
        self.assertEqual(shown, "one\n")

    def test_offered_again_it_is_brought_up_to_date(self):
        self.succeed("offer", self.tap, answers=self.none_yet)
        (self.tap / "Casks/claude-proxy-router.rb").write_text("two\n")
        self.succeed("offer", self.tap)
        self.assertEqual(len(self.calls("gh", "create")), 1)
        shown = self.git("show", f"claude-proxy-router-{VERSION}:Casks/claude-proxy-router.rb", cwd=self.upstream)
        self.assertEqual(shown, "two\n")

    def test_what_the_tap_has_already_is_not_offered(self):
        self.git("add", ".", cwd=self.tap)
        self.git("commit", "--quiet", "--message", "released", cwd=self.tap)
        self.succeed("offer", self.tap)
        self.assertEqual(self.calls("gh"), [])


class WhatHomebrewRemoves(unittest.TestCase):
    def test_zap_lists_what_the_router_makes_and_nothing_else(self):
        cask = (ROOT / "Casks/claude-proxy-router.rb").read_text()
        zapped = re.findall(r'^    "(~/[^"]*)",$', cask, re.MULTILINE)
        self.assertEqual(zapped, sorted(zapped))
        self.assertEqual(set(zapped), {
            "~/Library/Application Support/claude-proxy-router",
            "~/Library/Logs/claude-proxy-router",
            *(f"~/Library/{place}/{IDENTIFIER}" for place in ["Caches", "HTTPStorages", "WebKit"]),
            f"~/Library/Preferences/{IDENTIFIER}.plist",
            f"~/Library/Saved Application State/{IDENTIFIER}.savedState",
        })

    def test_a_copy_that_was_not_released_installs_nothing(self):
        for file in ["Casks/claude-proxy-router.rb", "Formula/claude-proxy-router.rb"]:
            self.assertIn(f'sha256 "{"0" * 64}"', (ROOT / file).read_text())
            self.assertNotIn("no_check", (ROOT / file).read_text())


class TheService(unittest.TestCase):
    def test_ld_01_it_is_restarted_after_a_failure_only(self):
        formula = (ROOT / "Formula/claude-proxy-router.rb").read_text()
        service = formula[formula.index("service do"):formula.index("def caveats")]
        self.assertIn("keep_alive successful_exit: false", service)
        self.assertIn('run [opt_bin/"claude-proxy-router", "start", "--log", var/"log/claude-proxy-router.log"]', service)


class Plists(unittest.TestCase):
    def test_they_are_plists(self):
        found = sorted((ROOT / "packaging").rglob("*.plist"))
        self.assertTrue(found)
        for path in found:
            with self.subTest(path.name):
                self.assertIsInstance(plistlib.loads(path.read_bytes()), dict)

    def test_nothing_is_asked_of_macos_that_weakens_the_hardened_runtime(self):
        self.assertEqual(plistlib.loads((ROOT / "packaging/entitlements.plist").read_bytes()), {})
        # Apple's own reader of entitlements takes no comments.
        self.assertNotIn("<!--", (ROOT / "packaging/entitlements.plist").read_text())


if __name__ == "__main__":
    unittest.main()
