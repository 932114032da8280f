// A desk to try the app on: a home of its own, a pretended Anthropic with three made-up logins in that home, and the app
// under a WebDriver. A display and a session bus are there already (scripts/e2e).

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Session, until } from "./webdriver.mjs";

/** The built programs; scripts/e2e names them. */
export const { APP, COMMAND, TAURI_DRIVER } = process.env;

export async function freePort() {
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

/** A program of ours, with what it printed. */
export class Program {
  constructor(path, args, environment) {
    this.output = "";
    // The head of a group, so that what it starts can be ended with it.
    this.child = spawn(path, args, { env: environment, stdio: ["ignore", "pipe", "pipe"], detached: true });
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on("data", (data) => (this.output += data));
    const ended = new Promise((ended) => this.child.on("exit", (code, signal) => ended(signal ?? code)));
    /** How it ended, once it did. */
    this.exit = undefined;
    ended.then((how) => (this.exit = how));
  }

  /** Waits for its end, and gives its exit code or the signal that ended it. */
  get ended() {
    return until(`${this.child.spawnfile} ends; it said: ${this.output.slice(-2000)}`, () => this.exit !== undefined && { how: this.exit }).then(({ how }) => how);
  }

  /** Waits until it printed something that matches, and gives the match. */
  printed(pattern) {
    return until(`it prints ${pattern}; so far: ${this.output.slice(-2000)}`, () => pattern.exec(this.output));
  }

  end(signal = "SIGTERM") {
    this.child.kill(signal);
    return this.ended;
  }

  /** Ends it and all it started, by force. */
  destroy() {
    try {
      process.kill(-this.child.pid, "SIGKILL");
    } catch {
      // All gone already.
    }
  }
}

export class Desk {
  /** `settings` go over the usual ones. */
  static async lay(settings = {}) {
    const desk = new Desk();
    desk.folder = mkdtempSync(join(tmpdir(), "cpr-e2e-"));
    desk.home = join(desk.folder, "home");
    desk.environment = {
      ...process.env,
      HOME: desk.home,
      XDG_CONFIG_HOME: join(desk.home, ".config"),
      XDG_DATA_HOME: join(desk.home, ".local/share"),
      XDG_STATE_HOME: join(desk.home, ".local/state"),
      XDG_CACHE_HOME: join(desk.home, ".cache"),
      XDG_RUNTIME_DIR: join(desk.folder, "run"),
      LANG: "C.UTF-8",
      CLAUDE_PROXY_ROUTER_LOG: "info",
    };
    desk.config = join(desk.environment.XDG_CONFIG_HOME, "claude-proxy-router/config.json");
    for (const folder of [desk.home, desk.environment.XDG_RUNTIME_DIR, join(desk.config, "..")]) {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
    }
    desk.sandbox = desk.program(COMMAND, ["sandbox", "--logins", desk.home]);
    [, desk.upstream] = await desk.sandbox.printed(/at (http:\/\/\S+)/);
    desk.port = await freePort();
    const usual = {
      port: desk.port,
      upstream: desk.upstream,
      tokenUrl: `${desk.upstream}/v1/oauth/token`,
      includeDefaultAccount: false,
    };
    writeFileSync(desk.config, JSON.stringify({ ...usual, ...settings }));
    return desk;
  }

  programs = [];

  program(path, args) {
    const program = new Program(path, args, this.environment);
    this.programs.push(program);
    return program;
  }

  /** Starts the app under a driver, and waits for its first window. */
  async open(...args) {
    this.driverPort = await freePort();
    const nativePort = await freePort();
    const driver = this.program(TAURI_DRIVER, ["--port", String(this.driverPort), "--native-port", String(nativePort)]);
    const url = `http://127.0.0.1:${this.driverPort}`;
    await until("the driver", () => fetch(`${url}/status`));
    this.driver = driver;
    this.session = await Session.open(url, APP, args);
    return this.session;
  }

  /** Ends the app that was opened, and its driver: that one would end it by force. */
  async close() {
    const lock = this.config.replace("config.json", "config.app.lock");
    process.kill(Number(readFileSync(lock, "utf8")), "SIGTERM");
    await until("the app has ended", () => fetch(`${this.address}/_router/ping`).then(() => false, () => true));
    this.driver.destroy();
  }

  /** The settings as they stand in the file. */
  settings() {
    return JSON.parse(readFileSync(this.config, "utf8"));
  }

  /** Sets some of them, before anything was started. */
  write(settings) {
    writeFileSync(this.config, JSON.stringify({ ...this.settings(), ...settings }));
  }

  get address() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** A small turn, as a device with that key sends it. */
  turn(key, { model = "claude-opus-5-5", text = "hello" } = {}) {
    return fetch(`${this.address}/v1/messages`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-router-key": key },
      body: JSON.stringify({ model, max_tokens: 50, messages: [{ role: "user", content: text }] }),
      signal: AbortSignal.timeout(60_000),
    });
  }

  /** Uses a seat up, or a share of it, as the pretended Anthropic sees it. */
  async useUp(seat, fraction, resetInS) {
    const answer = await fetch(`${this.upstream}/__sandbox/use_up`, {
      method: "POST",
      body: JSON.stringify({ seat, allowance: "five_hour", fraction, reset_in_s: resetInS }),
    });
    if (!answer.ok) throw new Error(await answer.text());
  }

  /** Says something to the running router over its control socket, as the command does. */
  async say(...verb) {
    const program = this.program(COMMAND, verb);
    const code = await program.ended;
    if (code !== 0) throw new Error(program.output);
    return program.output;
  }

  async status() {
    return JSON.parse(await this.say("status", "--json"));
  }

  /** Ends all that was started here. */
  async clear() {
    for (const program of this.programs) program.destroy();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
