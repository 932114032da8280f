// What comes and goes around the app: the address it listens on, and Anthropic.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { connect, createServer } from "node:net";
import { afterEach, test } from "node:test";

import { APP, Desk } from "./desk.mjs";
import { until } from "./webdriver.mjs";

let desk;
const relays = [];
afterEach(async () => {
  for (const relay of relays.splice(0)) relay.close();
  await desk?.clear();
});

const key = () => desk.settings().routerKey;
const serving = () => until("the router answers", async () => (await fetch(`${desk.address}/_router/ping`)).ok);

const alone = process.env.OFFLINE ? {} : { skip: "without a private network no address can be added" };
test("NW-01: an address that comes later is waited for, served, and followed when it goes", alone, async () => {
  const later = "10.99.0.1";
  const address = (change) => execFileSync("ip", ["address", change, `${later}/32`, "dev", "lo"], { env: { PATH: "/usr/sbin:/sbin:/usr/bin:/bin" } });
  desk = await Desk.lay({ host: ["127.0.0.1", later], app: { onboarded: true } });
  const app = desk.program(APP, ["--background"]);
  await serving();
  const waits = (for_) => until(`it waits for ${for_}`, async () => String((await desk.status()).waiting) === for_.join());
  for (let round = 0; round < 2; round++) {
    await waits([`${later}:${desk.port}`]);
    assert.equal((await desk.turn(key())).status, 200, "it serves meanwhile");
    address("add");
    await waits([]);
    assert((await fetch(`http://${later}:${desk.port}/_router/ping`, { headers: { "x-router-key": key() } })).ok);
    address("del");
  }
  assert.equal(await app.end(), 0, app.output);
});

test("NW-03: while Anthropic cannot be reached the app says so and blames no account; afterwards it serves at once", async () => {
  desk = await Desk.lay({ app: { onboarded: true } });
  const behind = new URL(desk.upstream);
  const relay = await Relay.open(behind);
  relays.push(relay);
  desk.write({ upstream: relay.address });
  const page = await desk.open();
  await page.window("panel");
  await page.says("[data-testid=status]", "Routing");
  assert.equal((await desk.turn(key())).status, 200);

  relay.close();
  const refused = await desk.turn(key());
  assert.equal(refused.status, 502);
  assert.equal((await refused.json()).type, "error");
  await page.says("[data-testid=status]", "Can’t reach Anthropic");
  assert.deepEqual((await desk.status()).seats.map(({ state }) => state.kind), ["ready", "ready", "ready"]);

  await relay.open();
  assert.equal((await desk.turn(key())).status, 200);
  await page.says("[data-testid=status]", "Routing");
});

/** A way to a server that can be closed, with all that is on it, and opened again at the same place. */
class Relay {
  sockets = new Set();

  static async open(behind) {
    const relay = new Relay();
    relay.behind = behind;
    relay.port = 0;
    await relay.open();
    return relay;
  }

  async open() {
    this.server = createServer((near) => {
      const far = connect(this.behind.port, this.behind.hostname);
      for (const socket of [near, far]) {
        this.sockets.add(socket);
        socket.on("error", () => {}).on("close", () => this.sockets.delete(socket));
      }
      near.pipe(far).pipe(near);
    });
    await new Promise((listening) => this.server.listen(this.port, "127.0.0.1", listening));
    this.port = this.server.address().port;
  }

  close() {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  get address() {
    return `http://127.0.0.1:${this.port}`;
  }
}
