// The app from its first launch on, by clicks alone: what a person sees is what is asked for.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
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
  await page.says("[data-testid=switch]", /work/);
  await until("another seat is next", async () => (await page.text("[data-testid=next]")) !== "work");
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

function visible() {
  const windows = execFileSync("xwininfo", ["-root", "-tree"], { encoding: "utf8" });
  const ids = [...windows.matchAll(/(0x[0-9a-f]+) "Claude Proxy Router"/g)].map(([, id]) => id);
  return ids.some((id) => /IsViewable/.test(execFileSync("xwininfo", ["-id", id, "-stats"], { encoding: "utf8" })));
}
