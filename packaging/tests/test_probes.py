"""The probes, on the small Mac of `mac.py`: they pass where all is well, and each thing that may go wrong stops them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["uname", "brew", "claude-proxy-router", "curl", "launchctl", "open", "osascript", "pgrep", "lsappinfo", "security",
         "codesign", "lipo", "plutil", "xattr", "sleep"]


class Probes(unittest.TestCase):
    def setUp(self):
        self.here = Path(tempfile.mkdtemp(prefix="a mac "))
        self.addCleanup(shutil.rmtree, self.here)
        self.fakes, self.dist = self.here / "fakes", self.here / "dist"
        for folder in ["fakes", "dist", "home", "state", "Applications"]:
            (self.here / folder).mkdir()
        self.addCleanup(self.end_agents)
        for tool in TOOLS:
            (self.fakes / tool).write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{ROOT}/packaging/tests/mac.py" {tool} "$@"\n')
            (self.fakes / tool).chmod(0o755)

    def end_agents(self):
        children = self.here / "state/children"
        for pid in children.read_text().split() if children.exists() else []:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def probe(self, *command, wrong=""):
        # Only the Keychain's probe begins processes that take a moment to be there.
        patience = 40 if command[0] == "keychain" else 3
        return subprocess.run(
            [ROOT / "packaging/probe" / command[0], *map(str, command[1:])],
            env={"PATH": f"{self.fakes}:/usr/bin:/bin", "HOME": str(self.here / "home"), "STATE": str(self.here / "state"),
                 "APPLICATIONS": str(self.here / "Applications"), "FAKES": str(self.fakes), "DIST": str(self.dist),
                 "CI": "true", "WRONG": wrong, "PATIENCE": str(patience)},
            capture_output=True, text=True, timeout=300)

    def anew(self):
        self.doCleanups()
        self.setUp()

    def passes(self, *command):
        ran = self.probe(*command)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def stops(self, words, *command, wrong):
        ran = self.probe(*command, wrong=wrong)
        self.assertNotEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(words, ran.stderr)

    def test_a_service_that_comes_back_after_a_crash_and_stays_ended_after_a_stop_passes(self):
        self.passes("service", self.fakes / "claude-proxy-router")

    def test_a_service_that_does_not_come_back_is_seen(self):
        self.stops("starts it again", "service", self.fakes / "claude-proxy-router", wrong="no restart")

    def test_ld_01_a_service_that_comes_back_after_a_stop_is_seen(self):
        self.stops("not so in time: a stop ends it", "service", self.fakes / "claude-proxy-router", wrong="comes back")

    def test_a_login_in_the_keychain_that_serves_and_is_renewed_passes_and_the_keychain_goes(self):
        self.passes("keychain", self.fakes / "claude-proxy-router")
        self.assertTrue((self.here / "state/delete-keychain").exists())

    def test_what_a_renewal_would_do_wrongly_is_seen(self):
        for wrong, words in [
            ("no renewal", "not so in time: its login has ended and is renewed"),
            ("forgets", "something in the item is gone"),
            ("talks", "a secret is in the log"),
        ]:
            with self.subTest(wrong):
                self.anew()
                self.stops(words, "keychain", self.fakes / "claude-proxy-router", wrong=wrong)

    def release(self):
        version = subprocess.run([ROOT / "packaging/version"], capture_output=True, text=True, check=True).stdout.strip()
        zeros = "1" * 64
        (self.dist / "SHA256SUMS").write_text(
            f"{zeros}  Claude-Proxy-Router-{version}-universal.dmg\n{zeros}  claude-proxy-router-{version}.tar.gz\n")
        (self.dist / "signing").write_text("ad-hoc\n")

    def test_a_release_that_comes_and_goes_through_homebrew_passes(self):
        self.release()
        self.passes("homebrew")

    def test_what_homebrew_would_leave_or_take_away_wrongly_is_seen(self):
        for wrong, words in [
            ("leftover", "left behind: ~/Library/Application Support/claude-proxy-router"),
            ("greedy", "a Claude login is gone"),
            ("two", "three more starts leave one"),
            ("dock", "an app with a Dock icon"),
            ("does not quit", "not so in time: it quits when asked"),
        ]:
            with self.subTest(wrong):
                self.anew()
                self.release()
                self.stops(words, "homebrew", wrong=wrong)

    def test_a_machine_that_is_not_thrown_away_is_left_alone(self):
        for probe in ["app", "service", "keychain", "homebrew", "audit"]:
            ran = subprocess.run([ROOT / "packaging/probe" / probe, "x"], env={"PATH": f"{self.fakes}:/usr/bin:/bin", "HOME": "/nowhere"},
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 64, probe)


if __name__ == "__main__":
    unittest.main()
