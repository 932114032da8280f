// WebDriver over fetch: as much of it as the tests of the app use.

const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";
/** How long anything on a screen may take, in milliseconds: a loaded machine is slow, and a wrong screen stays wrong. */
const PATIENCE = 30_000;
const BETWEEN_LOOKS = 50;

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Looks again and again until `look` gives something; fails with what it last said. */
export async function until(what, look, patience = PATIENCE) {
  const end = performance.now() + patience;
  for (let last; ; ) {
    try {
      last = await look();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    if (performance.now() > end) throw new Error(`waited in vain: ${what} (last: ${last?.message ?? JSON.stringify(last)})`);
    await pause(BETWEEN_LOOKS);
  }
}

async function call(method, url, body) {
  const answer = await fetch(url, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  });
  const { value } = await answer.json();
  if (!answer.ok) throw new Error(`${value?.error}: ${value?.message}`);
  return value;
}

/** One app, started by the driver. */
export class Session {
  static async open(driver, application, args) {
    // A browserName would be refused: the driver knows the app as another.
    const capabilities = { alwaysMatch: { "tauri:options": { application, args } } };
    const { sessionId } = await call("POST", `${driver}/session`, { capabilities });
    return new Session(`${driver}/session/${sessionId}`);
  }

  constructor(base) {
    this.base = base;
  }

  #do(method, path, body) {
    return call(method, this.base + path, body);
  }

  /** Turns to the window whose page is `name`, once there is one. */
  async window(name) {
    await until(`a window with ${name}.html`, async () => {
      for (const handle of await this.#do("GET", "/window/handles")) {
        await this.#do("POST", "/window", { handle });
        if (new URL(await this.url()).pathname === `/${name}.html`) return true;
      }
      return false;
    });
  }

  /** The pages that are open. */
  async pages() {
    const names = [];
    for (const handle of await this.#do("GET", "/window/handles")) {
      await this.#do("POST", "/window", { handle });
      names.push(new URL(await this.url()).pathname.slice(1, -".html".length));
    }
    return names.sort();
  }

  url() {
    return this.#do("GET", "/url");
  }

  run(script, ...args) {
    return this.#do("POST", "/execute/sync", { script, args });
  }

  /** The same for a script that ends by calling its last argument. */
  runAsync(script, ...args) {
    return this.#do("POST", "/execute/async", { script, args });
  }

  async #find(css) {
    return (await this.#do("POST", "/element", { using: "css selector", value: css }))[ELEMENT];
  }

  /** What the element says now; the driver's own notion of text leaves out what ends in an ellipsis. */
  async #says(css) {
    const text = await this.run("return document.querySelector(arguments[0])?.innerText ?? null", css);
    if (text === null) throw new Error(`there is no ${css}`);
    return text.replace(/\s+/g, " ").trim();
  }

  /** The element's text, once it is there. */
  text(css) {
    return until(`text of ${css}`, () => this.#says(css));
  }

  /** Waits until the element says `wanted`: a text that it contains, or an expression that it matches. */
  async says(css, wanted) {
    await until(`${css} says ${wanted}`, async () => {
      const text = await this.#says(css);
      if (typeof wanted === "string" ? text.includes(wanted) : wanted.test(text)) return true;
      throw new Error(`it says ${JSON.stringify(text)}`);
    });
  }

  async count(css) {
    return (await this.#do("POST", "/elements", { using: "css selector", value: css })).length;
  }

  async gone(css) {
    await until(`${css} is gone`, async () => (await this.count(css)) === 0);
  }

  async attribute(css, name) {
    return until(`${name} of ${css}`, async () => (await this.#do("GET", `/element/${await this.#find(css)}/attribute/${name}`)) ?? false);
  }

  async click(css) {
    await until(`click on ${css}`, async () => {
      await this.#do("POST", `/element/${await this.#find(css)}/click`, {});
      return true;
    });
  }

  /** Clicks what a person would: the visible button, link, switch or choice of that name. */
  async press(name, within = "body") {
    await until(`something to press that is called ${name}`, async () => {
      const found = await this.run(
        `const [name, within] = arguments;
         const kinds = "button, a[href], [role=button], [role=switch], [role=radio], [role=tab], [role=menuitem], label, summary, input[type=checkbox], input[type=radio]";
         const called = (el) => (el.getAttribute("aria-label") ?? el.innerText ?? "").trim().replace(/\\s+/g, " ");
         const seen = (el) => el.getClientRects().length > 0 && !el.disabled && el.getAttribute("aria-disabled") !== "true";
         const all = [...document.querySelectorAll(within)].flatMap((root) => [...root.querySelectorAll(kinds)]).filter(seen);
         return all.find((el) => called(el) === name) ?? all.find((el) => called(el).startsWith(name)) ?? null;`,
        name,
        within,
      );
      if (!found) throw new Error(`the page says: ${(await this.run("return document.body.innerText")).slice(0, 400)}`);
      await this.#do("POST", `/element/${found[ELEMENT]}/click`, {});
      return true;
    });
  }

  /** Chooses a value in the list of that name. */
  async choose(name, value) {
    const chosen = await until(`a list called ${name}`, () =>
      this.run(
        `const [name, value] = arguments;
         const list = [...document.querySelectorAll("select")].find((one) => one.getAttribute("aria-label") === name);
         if (!list) return false;
         list.value = value;
         list.dispatchEvent(new Event("input", { bubbles: true }));
         list.dispatchEvent(new Event("change", { bubbles: true }));
         return list.value;`,
        name,
        value,
      ),
    );
    if (chosen !== value) throw new Error(`${name} has no ${value}`);
  }

  /** Types into a field what replaces its text. */
  async type(css, text) {
    const element = await until(css, () => this.#find(css));
    await this.#do("POST", `/element/${element}/clear`, {});
    await this.#do("POST", `/element/${element}/value`, { text });
  }

  async key(key) {
    const actions = [{ type: "keyDown", value: key }, { type: "keyUp", value: key }];
    await this.#do("POST", "/actions", { actions: [{ type: "key", id: "keyboard", actions }] });
  }
}
