// The app's process: many at once, a bare environment, its end, and what it costs when nobody looks.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, test } from "node:test";

import { APP, COMMAND, Desk, Program } from "./desk.mjs";
import { choose } from "./tray.mjs";
import { pause, until } from "./webdriver.mjs";

let desk;
afterEach(() => desk?.clear());

const answers = async () => (await fetch(`${desk.address}/_router/ping`)).ok;
const serving = () => until("the router answers", answers);
const key = () => desk.settings().routerKey;

test("GU-06: of many copies started at once exactly one stays, and the others end well", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  for (let round = 0; round < Number(process.env.ROUNDS ?? 3); round++) {
    const copies = Array.from({ length: 4 }, () => desk.program(APP, ["--background"]));
    const ended = await until("three have ended", async () => {
      const codes = copies.map(({ child }) => child.exitCode).filter((code) => code !== null);
      return codes.length >= 3 && codes;
    });
    assert.deepEqual(ended, [0, 0, 0]);
    await serving();
    const left = copies.filter(({ child }) => child.exitCode === null);
    assert.equal(left.length, 1);
    assert.equal(await left[0].end(), 0, left[0].output);
  }
});

test("GU-06: the service goes before the app, which says so and takes its place when told", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const service = desk.program(COMMAND, ["start"]);
  await serving();
  const page = await desk.open();
  await page.window("panel");
  await page.says("[data-testid=status]", "service");
  assert.equal(service.child.exitCode, null);
  await page.press("Stop it…");
  await page.press("Stop it and start here");
  assert.equal(await service.ended, 0, service.output);
  await page.says("[data-testid=status]", "Routing");
  await serving();
  // And the other way round: the command finds the app's router, and has nothing to do.
  const late = desk.program(COMMAND, ["start"]);
  assert.equal(await late.ended, 0, late.output);
  assert.match(late.output, /Nothing to do/);
});

test("ON-01: a port that another program has is said, and left to it", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const holder = new Program(process.execPath, ["-e", `require("node:http").createServer((_, a) => a.end("mine")).listen(${desk.port}, "127.0.0.1")`], process.env);
  desk.programs.push(holder);
  await until("the port is taken", async () => (await (await fetch(desk.address)).text()) === "mine");
  const page = await desk.open();
  await page.window("panel");
  await page.says("[data-testid=status]", String(desk.port));
  assert.equal(await (await fetch(desk.address)).text(), "mine");
  await page.press(`Use ${desk.port + 1}`);
  desk.port += 1;
  await serving();
  await page.says("[data-testid=status]", "Routing");
  assert.equal(holder.child.exitCode, null);
});

test("LD-02: a bare environment is enough", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const { HOME, XDG_RUNTIME_DIR, XDG_CONFIG_HOME, XDG_STATE_HOME, DISPLAY, DBUS_SESSION_BUS_ADDRESS } = desk.environment;
  const bare = new Program(APP, ["--background"], { HOME, XDG_RUNTIME_DIR, XDG_CONFIG_HOME, XDG_STATE_HOME, DISPLAY, DBUS_SESSION_BUS_ADDRESS });
  desk.programs.push(bare);
  await serving();
  assert.equal((await desk.turn(key())).status, 200);
  assert.equal(await bare.end(), 0, bare.output);
});

test("LD-04: told to end while it streams, the app lets the answer end, saves, and lets go of its locks", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const app = desk.program(APP, ["--background"]);
  await serving();
  const stream = await slow();
  await stream.begun;
  const ended = app.end();
  await pause(200);
  await assert.rejects(fetch(`${desk.address}/_router/ping`), "nothing new is taken in");
  assert.match(await stream.whole, /message_stop/);
  assert.equal(await ended, 0, app.output);
  assert.deepEqual(readdirSync(desk.home).filter((name) => name.endsWith(".lock")), []);
  const again = desk.program(APP, ["--background"]);
  await serving();
  assert.equal(await again.end(), 0);
});

test("LD-04: asked to quit, the app waits for a quiet moment; asked again, it does not", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const app = desk.program(APP, ["--background"]);
  await serving();
  const stream = await slow("stall");
  await stream.begun;
  await choose("Quit");
  await until("others are still served", async () => (await desk.turn(key())).status === 200);
  assert.equal(app.child.exitCode, null);
  const since = performance.now();
  await choose("Quit now (answers are still running)");
  assert.equal(await app.ended, 0, app.output);
  // A minute of silence lay before the stream's end, and ten seconds is what it would have had.
  assert(performance.now() - since < 9_000, "the answer was waited for");
  await stream.whole.catch(() => {});
});

test("LD-01: ended by the command, the app ends too, and well", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const app = desk.program(APP, ["--background"]);
  await serving();
  await desk.say("stop");
  assert.equal(await app.ended, 0, app.output);
});

test("without a tray, a bus or somebody to show banners the router runs", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const { DBUS_SESSION_BUS_ADDRESS, ...without } = desk.environment;
  assert(DBUS_SESSION_BUS_ADDRESS);
  const app = new Program(APP, ["--background"], { ...without, DBUS_SESSION_BUS_ADDRESS: "unix:path=/nowhere" });
  desk.programs.push(app);
  await serving();
  assert.equal((await desk.turn(key())).status, 200);
  assert.equal(app.child.exitCode, null, app.output);
});

test("a crash is told of at the next start, once; an end by force is none", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const state = join(desk.environment.XDG_STATE_HOME, "claude-proxy-router");
  const killed = desk.program(APP, ["--background"]);
  await serving();
  await killed.end("SIGKILL");
  assert(existsSync(join(state, "app.running")));
  let page = await desk.open();
  await page.window("panel");
  await page.says("[data-testid=status]", "Routing");
  assert.doesNotMatch(await page.text("body"), /after a problem/);
  await desk.close();
  // What a panic leaves.
  writeFileSync(join(state, "app.running"), "");
  writeFileSync(join(state, "crash.log"), "thread main: it broke");
  page = await desk.open();
  await page.window("panel");
  await page.says("body", "We restarted after a problem.");
  await page.press("Copy report");
  await page.press("Dismiss");
  await until("it is gone", async () => !(await page.text("body")).includes("after a problem"));
  assert(!existsSync(join(state, "crash.log")));
});

test("closed and left alone, the app is small and sleeps; opened and closed again, too", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const app = desk.program(APP, ["--background"]);
  await serving();
  await pause(8_000);
  const never = await cost(app.child.pid);
  console.log(`never opened: ${never}`);
  assert(never.pssMiB <= 130 && never.perSecond < 4, String(never));
  assert.equal(await app.end(), 0);

  const page = await desk.open();
  await page.window("panel");
  await page.says("[data-testid=status]", "Routing");
  const pid = Number(readFileSync(desk.config.replace("config.json", "config.app.lock"), "utf8"));
  console.log(`open: ${await cost(pid)}`);
  await page.key("\uE00C");
  await until("the web view is ended", () => !family(pid).some((one) => /WebKitWebProces/.test(named(one))), 60_000);
  await pause(5_000);
  const closed = await cost(pid);
  console.log(`closed again: ${closed}`);
  // WebKit keeps its network process, some 30 MiB, and this is a debug build: its code alone is twice a release's.
  assert(closed.pssMiB <= 170 && closed.perSecond < 10, String(closed));
});

/** A streamed turn that takes its time. */
async function slow(how) {
  const answer = how ? { sse: how } : { sse: "ok", delay_ms: 1_500 };
  await fetch(`${desk.upstream}/__sandbox/script`, { method: "POST", body: JSON.stringify({ path: "/v1/messages", answer }) });
  const response = fetch(`${desk.address}/v1/messages`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-router-key": key() },
    body: JSON.stringify({ model: "claude-opus-5-5", max_tokens: 50, stream: true, messages: [{ role: "user", content: "slowly" }] }),
  });
  const under = until("it is under way", async () => JSON.parse((await desk.say("status", "--json"))).seats.some((seat) => seat.inFlight > 0));
  const whole = response.then((answer) => answer.text());
  whole.catch(() => {});
  return { begun: under, whole };
}

function named(pid) {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8");
  } catch {
    return "";
  }
}

/** The process and all it started. */
function family(root) {
  const parents = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [[Number(pid), Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")[1])]];
      } catch {
        return [];
      }
    });
  const all = [root];
  for (let i = 0; i < all.length; i++) all.push(...parents.filter(([, parent]) => parent === all[i]).map(([pid]) => pid));
  return all;
}

/** Memory, and how often anything in it woke up, over ten seconds. */
async function cost(root) {
  const seconds = 10;
  const wakes = () =>
    family(root)
      .flatMap((pid) => readdirSync(`/proc/${pid}/task`).map((task) => `/proc/${pid}/task/${task}/status`))
      .reduce((sum, path) => sum + Number(/\nvoluntary_ctxt_switches:\s+(\d+)/.exec(readFileSync(path, "utf8"))?.[1]), 0);
  const before = wakes();
  await pause(seconds * 1000);
  // A thread that ended takes its count along.
  const perSecond = Math.max(0, (wakes() - before) / seconds);
  const each = family(root).map((pid) => {
    const roll = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
    const [all, own] = ["Pss", "Pss_Anon"].map((what) => Math.round(Number(new RegExp(`^${what}:\\s+(\\d+)`, "m").exec(roll)[1]) / 1024));
    return { all, words: `${named(pid).trim()} ${all}, ${own} of it its own` };
  });
  const pssMiB = each.reduce((sum, { all }) => sum + all, 0);
  const words = `${pssMiB} MiB (${each.map(({ words }) => words).join("; ")}), ${perSecond} wake-ups a second`;
  return { pssMiB, perSecond, toString: () => words };
}
