// The app from its first launch on, by clicks alone: what a person sees is what is asked for.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test as unconditionally } from "node:test";

import { APP, Desk } from "./desk.mjs";
import { choose, menu } from "./tray.mjs";
import { until } from "./webdriver.mjs";

const { PICTURES } = process.env;
let desk, page, key;

before(async () => {
  desk = await Desk.lay();
  page = await desk.open();
});
after(async () => {
  if (broken) {
    console.log(desk.driver?.output.slice(-4000));
    console.log(await page?.run("return location.href + '\\n' + document.body.innerText").catch(String));
    await picture("broken");
  }
  await desk?.clear();
});

/** A step: after one that failed the next ones have nothing to stand on. */
let broken = false;
const test = (name, what) =>
  unconditionally(name, async (context) => {
    if (broken) return context.skip("an earlier step failed");
    broken = true;
    await what(context);
    broken = false;
  });

/** Keeps what the page looks like, where pictures are wanted. */
async function picture(name) {
  if (!PICTURES) return;
  mkdirSync(PICTURES, { recursive: true });
  // The whole screen: the driver's own pictures are of the page, and wait for ever where nothing is drawn anew.
  execFileSync("import", ["-window", "root", join(PICTURES, `${name}.png`)]);
}

const clipboard = () => execFileSync("xclip", ["-selection", "clipboard", "-o"], { encoding: "utf8", timeout: 10_000 });

test("ON: the first launch opens the introduction, and nothing goes on before its owner agreed", async () => {
  await page.window("onboarding");
  await page.says("h1", "Claude Proxy Router");
  assert.equal(await page.run("return [...document.querySelectorAll('button')].find((b) => b.innerText === 'Continue').disabled"), true);
  await picture("onboarding-1");
  await page.press("These are my own accounts");
  await page.press("Continue");
});

test("the accounts are found by themselves, with a switch each", async () => {
  await page.says("main", "personal");
  await page.says("main", "spare");
  await page.says("main", "work");
  assert.equal(await page.count("main [role=switch]"), 3);
  await picture("onboarding-2");
  await page.press("Continue");
});

test("who may connect begins with this machine alone, and the check names its steps", async () => {
  await page.says("h1", "Who may connect");
  await until("the address", async () => (await page.text("main")).includes(`127.0.0.1:${desk.port}`));
  await picture("onboarding-3");
  await page.press("Continue");
  await page.says("h1", "It works");
  await page.says("main", "Anthropic answered");
  await picture("onboarding-4");
  await page.press("Continue");
});

test("a second device's first request turns the page green", async () => {
  await page.says("h1", "Connect a device");
  await page.type("#name", "Laptop");
  await page.press("It has no login");
  await page.press("Copy");
  await until("the block is copied", () => {
    [, key] = /ANTHROPIC_AUTH_TOKEN=["']?([^\s"']+)/.exec(clipboard()) ?? [];
    return key;
  });
  assert.equal(await page.attribute("[data-testid=link]", "data-state"), "waiting");
  await picture("onboarding-5-waiting");
  assert.equal((await desk.turn(key)).status, 200);
  await until("green", async () => (await page.attribute("[data-testid=link]", "data-state")) === "connected");
  await picture("onboarding-5");
  await page.press("Finish");
});

test("done, the panel says who serves next and why", async () => {
  await page.window("panel");
  await page.says("[data-testid=status]", "Routing");
  await page.says("[data-testid=next]", "work");
  assert.deepEqual(await page.pages(), ["panel"]);
  await page.window("panel");
  const [x, y, width, height, screenWidth, screenHeight] = await page.run(
    "return [screenX, screenY, innerWidth, innerHeight, screen.width, screen.height]",
  );
  assert.equal(width, 360);
  assert(x >= 0 && y >= 0 && x + width <= screenWidth && y + height <= screenHeight, `${width}x${height} at ${x},${y}`);
  assert.equal(desk.settings().app.onboarded, true);
  await picture("panel");
});

test("the menu says the same in words", async () => {
  await until("the sentence", async () => /^Routing\. work next, \d+ percent used/.test((await menu())[0]?.label));
  assert.equal((await menu())[0].enabled, false);
});

test("a limit moves the next request on, and the panel tells", async () => {
  await desk.useUp("work", 1, 3600);
  const answer = await desk.turn(key);
  assert.equal(answer.status, 200);
  await page.window("panel");
  await until("another seat is next", async () => (await page.text("[data-testid=next]")) !== "work");
  await page.says("[data-testid=switch]", /work/);
  await picture("panel-after-a-limit");
});

test("a pause from the menu holds everything, and is taken back there", async () => {
  await choose("Pause routing");
  await page.says("[data-testid=status]", "Paused");
  await picture("panel-paused");
  assert.notEqual((await desk.turn(key)).status, 200);
  await choose("Resume routing");
  await page.says("[data-testid=status]", "Routing");
  assert.equal((await desk.turn(key)).status, 200);
});

test("GU-04: a closed panel stops nothing, and opening the app again shows it", async () => {
  await page.window("panel");
  await page.key("\uE00C");
  await until("the panel is hidden", () => !visible());
  assert.equal((await desk.turn(key)).status, 200);
  const second = desk.program(APP, []);
  assert.equal(await second.ended, 0, second.output);
  await until("the panel is shown", visible);
  await page.window("panel");
  await page.says("[data-testid=status]", "Routing");
});

/** An account that is ready, and not the one that is next. */
async function another() {
  const { seats, next } = await desk.status();
  return seats.find((one) => one.state.kind === "ready" && one.id !== next.seat);
}

test("an account is paused on its row, and taken back", async () => {
  await page.window("panel");
  const { id: seat } = await another();
  const row = `[data-seat="${seat}"]`;
  await expand(row);
  await page.press("Pause", row);
  await page.says(row, "Paused");
  await expand(row);
  assert.equal((await desk.status()).seats.find((one) => one.id === seat).state.kind, "paused");
  await page.press("Resume", row);
  await until("it is taken back", async () => !(await page.text(row)).includes("Paused"));
});

test("an account is drained on its page: it finishes, and takes nothing new", async () => {
  const { id: seat, label } = await another();
  await expand(`[data-seat="${seat}"]`);
  await page.press("Details", `[data-seat="${seat}"]`);
  await page.says("h1", label);
  await page.press("Drain");
  await page.says("body", "Drained");
  await picture("account");
  assert.equal((await desk.status()).seats.find((one) => one.id === seat).draining, true);
  await page.press("Resume");
  await until("it is taken back", async () => !(await page.text("body")).includes("Drained"));
  await page.press("Back to");
});

test("the settings open from the panel, and the order of accounts is changed there", async () => {
  await page.window("panel");
  await page.press("Menu");
  await page.press("Settings…");
  await page.window("settings");
  await page.press("Accounts");
  await page.says("h1", "Accounts");
  const order = async () => (await desk.status()).seats.map((seat) => seat.label);
  assert.deepEqual(await order(), ["personal", "spare", "work"]);
  await page.press("Move work up");
  await until("work comes before spare", async () => (await order()).join() === "personal,work,spare");
  await picture("settings-accounts");
});

test("the settings stay where they are when the panel opens, and the menu tests the way to Anthropic there", async () => {
  await choose("Open");
  await page.window("panel");
  await page.says("[data-testid=status]", "Routing");
  await page.window("settings");
  await page.says("h1", "Accounts");
  await choose("Test connection");
  await page.says("h1", "Network");
  await page.says("main", "It works");
  await page.says("main", "Anthropic answered");
});

test("the app speaks Korean from one moment to the next, in its windows, its panel and its menu", async () => {
  await page.window("settings");
  await page.press("General");
  await page.choose("Language", "ko");
  await page.says("h1", "일반");
  await picture("settings-ko");
  assert.equal(desk.settings().language, "ko");
  await until("the menu is Korean", async () => (await menu()).some((entry) => entry.label === "열기"));
  await choose("열기");
  await page.window("panel");
  await page.says("[data-testid=status]", "라우팅");
  await picture("panel-ko");
  await page.window("settings");
  await page.choose("언어", "en");
  await page.says("h1", "General");
});

test("start at login is the system's own entry, switched in the settings", async () => {
  const entry = join(desk.environment.XDG_CONFIG_HOME, "autostart/io.github.choiyounggi.claude-proxy-router.desktop");
  assert(existsSync(entry), "the introduction ticks it");
  await page.window("settings");
  await page.press("General");
  await page.press("Open when I log in to this computer");
  await until("the entry is gone", () => !existsSync(entry));
  await page.press("Open when I log in to this computer");
  await until("the entry is there", () => existsSync(entry));
});

test("SC-04: no page may call what is not its own, and nothing reaches the network", async () => {
  await page.window("settings");
  const refused = await page.runAsync(
    "const done = arguments[arguments.length - 1]; window.__TAURI_INTERNALS__.invoke('save_file', { name: 'x', text: 'x' }).then(() => done('allowed'), (error) => done(String(error)));",
  );
  assert.match(refused, /not allowed/);
  const fetched = await page.runAsync(
    `const done = arguments[arguments.length - 1]; fetch('${desk.address}/_router/ping').then(() => done('fetched'), () => done('blocked'));`,
  );
  assert.equal(fetched, "blocked");
});

test("quit from the menu ends the app, its router and its socket", async () => {
  await choose("Quit");
  await until("nobody listens", () => fetch(`${desk.address}/_router/ping`).then(() => false, () => true));
  const mark = join(desk.environment.XDG_STATE_HOME, "claude-proxy-router/app.running");
  await until("the run has ended well", () => !existsSync(mark));
});

async function expand(row) {
  if ((await page.attribute(`${row} [aria-expanded]`, "aria-expanded")) === "false") await page.click(`${row} [aria-expanded]`);
}

function visible() {
  const windows = execFileSync("xwininfo", ["-root", "-tree"], { encoding: "utf8" });
  const ids = [...windows.matchAll(/(0x[0-9a-f]+) "Claude Proxy Router"/g)].map(([, id]) => id);
  return ids.some((id) => /IsViewable/.test(execFileSync("xwininfo", ["-id", id, "-stats"], { encoding: "utf8" })));
}
