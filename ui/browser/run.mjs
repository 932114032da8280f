// The built pages in a Chromium: no barriers in any state and theme, a walk by keyboard, and a few pictures compared.
// `UPDATE=1` keeps the pictures instead, `ONLY=panel-five` looks at some states alone. Without a Chromium this says so
// and passes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

import pixelmatch from 'pixelmatch';
import { PNG } from 'pngjs';

import { chromiumPath, launch, open, serve, snapshots } from './shell.mjs';
import { opening, pose, shots } from './shots.mjs';

if (!chromiumPath()) {
  console.error('browser: left out, no Chromium is here (set CHROMIUM to one)');
  process.exit(0);
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const pictures = fileURLToPath(new URL('pictures/', import.meta.url));
/** What drew the pictures that are kept: another release, or other fonts, draw letters otherwise. */
const recorded = existsSync(`${pictures}drawn-by`) ? readFileSync(`${pictures}drawn-by`, 'utf8') : '';

const [server, browser] = [await serve(), await launch()];
const version = browser.version();
const drawnBy = [`Chromium ${version}`, ...['Inter', 'JetBrains Mono', 'Noto Sans CJK KR'].map(font)].map((line) => `${line}\n`).join('');
const faults = [];
let passed = 0;

/** The font that the system has for that name, and its version. */
function font(name) {
  try {
    return execFileSync('fc-match', ['--format=%{family[0]} %{fontversion}', name], { encoding: 'utf8' });
  } catch {
    return `${name}: not known`;
  }
}

async function check(name, what) {
  try {
    await what();
    passed += 1;
  } catch (error) {
    faults.push(`${name}: ${error.message ?? error}`);
    console.error(`FAILED ${name}\n  ${String(error.message ?? error).replaceAll('\n', '\n  ')}`);
  }
}

/** Opens a shot, brings it into its state, does something with it. */
async function at(shot, rest, what) {
  const page = await open(browser, server.url, opening(shot, rest));
  try {
    await pose(page, shot, snapshots);
    await what(page);
    assert.deepEqual(page.complaints, [], 'the page complains');
  } finally {
    await page.context().close();
  }
}

// axe runs from the page's own world, past the page's policy, as a debugger would.
for (const shot of shots.filter((shot) => !process.env.ONLY || shot.name.startsWith(process.env.ONLY))) {
  for (const theme of ['light', 'dark']) {
    const language = theme === 'light' ? 'en' : 'ko';
    await check(`axe: ${shot.name} ${theme} ${language}`, () =>
      at(shot, { theme, language }, async (page) => {
        await page.evaluate(`(() => {${axe}})()`);
        const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
        const words = found.violations.map(({ id, help, nodes }) => `${id}: ${help}\n${nodes.map((node) => `  ${node.html.slice(0, 160)}`).join('\n')}`);
        assert.equal(words.length, 0, words.join('\n'));
        // Nothing sticks out sideways.
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(over <= 0, `${over} px wider than its window`);
      }),
    );
  }
}

const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent?.trim().replace(/\s+/g, ' '));
const said = (page) => page.evaluate(() => globalThis.__shell.said.filter((one) => !['fit', 'snapshot', 'facts'].includes(one.invoke)));

await check('keyboard: the panel', () =>
  at({ page: 'panel', snapshot: 'five' }, {}, async (page) => {
    const walk = [];
    for (let step = 0; step < 15; step += 1) {
      await page.keyboard.press('Tab');
      walk.push(await focused(page));
    }
    assert.match(walk[0], /Copy the router/);
    assert.ok(walk.some((name) => /^Home/.test(name)) && walk.some((name) => /^Allow…/.test(name)) && walk.includes('Menu'), walk.join(' | '));
    // Every stop is seen to be one.
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(ring, 'none');
    await page.getByRole('button', { name: /^Home/ }).focus();
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    while (!/^Details/.test(await focused(page))) await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.waitForSelector('h1:has-text("Home")');
    assert.equal(await focused(page), 'Back to Accounts');
    await page.getByRole('slider').focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Escape');
    await page.waitForSelector('[data-testid=next]');
    await page.keyboard.press('Escape');
    const verbs = (await said(page)).map((one) => one.verb ?? one.invoke);
    assert.ok(verbs.includes('reserve') && verbs.at(-1) === 'close_window', verbs.join(' '));
  }),
);

await check('keyboard: from first launch to the end', () =>
  at({ page: 'onboarding', facts: { firstRun: true } }, {}, async (page) => {
    await page.keyboard.press('Tab');
    await page.keyboard.press('Space');
    for (let step = 1; step <= 5; step += 1) {
      assert.equal(await page.getAttribute('[data-step]', 'data-step'), String(step));
      if (step === 3) await page.waitForFunction(() => document.querySelector('input[value=tailscale]')?.checked);
      for (let stop = 0; !/^(Continue|Finish)$/.test((await focused(page)) ?? '') && stop < 30; stop += 1) await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await page.waitForTimeout(60);
    }
    assert.equal((await said(page)).at(-1).invoke, 'finish_onboarding');
  }),
);

await check('keyboard: settings', () =>
  at({ page: 'settings' }, {}, async (page) => {
    for (let stop = 0; (await focused(page)) !== 'Notifications' && stop < 12; stop += 1) await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.waitForSelector('[data-page=notifications]');
    for (let stop = 0; (await page.evaluate(() => document.activeElement?.role ?? document.activeElement?.getAttribute('role'))) !== 'switch' && stop < 12; stop += 1) await page.keyboard.press('Tab');
    await page.keyboard.press('Space');
    assert.equal((await said(page)).at(-1).key, 'app.notify');
  }),
);

await check('digits stand in columns, as it is built', async () => {
  for (const name of ['panel', 'settings', 'onboarding', 'connect', 'activity']) {
    await at({ page: name }, {}, async (page) => {
      const widths = await page.evaluate(() => {
        const line = document.body.appendChild(document.createElement('span'));
        return ['1111', '8888'].map((text) => ((line.textContent = text), line.getBoundingClientRect().width));
      });
      assert.equal(widths[0], widths[1], name);
    });
  }
});

await check('keyboard: the menu', () =>
  at({ page: 'panel' }, {}, async (page) => {
    await page.getByRole('button', { name: 'Menu' }).focus();
    await page.keyboard.press('Enter');
    assert.equal(await focused(page), 'Pause routing');
    await page.keyboard.press('ArrowDown');
    assert.equal(await focused(page), 'Settings…');
    await page.keyboard.press('Escape');
    assert.equal(await focused(page), 'Menu');
    await page.keyboard.press('Enter');
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    assert.equal((await said(page)).at(-1).invoke, 'quit');
  }),
);

await check('a hidden page does not tick', () =>
  at({ page: 'panel' }, {}, async (page) => {
    const timers = await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true });
      let set = 0;
      const real = window.setTimeout;
      window.setTimeout = (...args) => { set += 1; return real(...args); };
      document.dispatchEvent(new Event('visibilitychange'));
      window.setTimeout = real;
      return set;
    });
    assert.equal(timers, 0);
  }),
);

await check('the panel asks to be as tall as what it shows', () =>
  at({ page: 'panel', snapshot: 'none' }, {}, async (page) => {
    const [fit, height] = await page.evaluate(() => [globalThis.__shell.said.findLast((one) => one.invoke === 'fit')?.height, document.querySelector('.page').offsetHeight]);
    assert.equal(fit, height);
    assert.ok(height < 200);
  }),
);

const COMPARED = [
  ['panel-five', 'light', 'en'], ['panel-five', 'dark', 'en'], ['panel-five', 'dark', 'ko'], ['panel-all-resting', 'light', 'en'],
  ['panel-expanded', 'light', 'en'], ['account-detail', 'light', 'en'], ['activity', 'light', 'en'], ['connect', 'light', 'en'],
  ['connect-done', 'light', 'en'], ['onboarding-2', 'light', 'en'], ['onboarding-4', 'dark', 'en'], ['settings-general', 'light', 'en'],
];
/** So much of a picture may differ. */
const TOLERANCE = 0.004;

if (process.env.UPDATE) {
  mkdirSync(pictures, { recursive: true });
  writeFileSync(`${pictures}drawn-by`, drawnBy);
}
if (!process.env.UPDATE && recorded !== drawnBy) {
  console.error(`browser: pictures are not compared, for they were drawn by\n${recorded}and here it would be\n${drawnBy.trimEnd()}`);
} else {
  for (const [name, theme, language] of COMPARED) {
    await check(`picture: ${name} ${theme} ${language}`, () =>
      at(shots.find((shot) => shot.name === name), { theme, language }, async (page) => {
        const file = `${pictures}${name}-${theme}-${language}.png`;
        const seen = await page.screenshot();
        if (process.env.UPDATE) return writeFileSync(file, seen);
        const [kept, now] = [PNG.sync.read(readFileSync(file)), PNG.sync.read(seen)];
        assert.deepEqual([now.width, now.height], [kept.width, kept.height]);
        const differing = pixelmatch(kept.data, now.data, null, kept.width, kept.height, { threshold: 0.15 });
        assert.ok(differing <= TOLERANCE * kept.width * kept.height, `${differing} points differ; UPDATE=1 keeps the new picture`);
      }),
    );
  }
}

await browser.close();
server.close();
console.log(`browser: ${passed} passed, ${faults.length} failed (Chromium ${version})`);
process.exit(faults.length > 0 ? 1 : 0);
