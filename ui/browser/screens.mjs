// Photographs every screen in every state, in both themes and languages.
// Without arguments: a sheet per group into docs/screens, and the panel alone for the README.
// With a folder and the beginnings of names: those, one picture each, twice as large.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { chromiumPath, launch, open, serve, snapshots } from './shell.mjs';
import { opening, pose, shots } from './shots.mjs';

const [folder, ...names] = process.argv.slice(2);
const themes = (process.env.THEMES ?? 'light,dark').split(',');
const languages = (process.env.LANGUAGES ?? 'en,ko').split(',');

if (!chromiumPath()) {
  console.error('screens: no Chromium is here (set CHROMIUM to one)');
  process.exit(1);
}
const [server, browser] = [await serve(), await launch()];

async function photograph(shot, theme, language, scale) {
  const page = await open(browser, server.url, opening(shot, { theme, language, scale }));
  await pose(page, shot, snapshots);
  if (shot.page === 'panel') {
    const height = await page.evaluate(() => Math.min(document.querySelector('.page').offsetHeight, 700));
    await page.setViewportSize({ width: 360, height });
  }
  const picture = await page.screenshot();
  if (page.complaints.length > 0) console.error(shot.name, theme, language, page.complaints);
  const { width } = page.viewportSize();
  await page.context().close();
  return { name: shot.name, width, picture };
}

/** One picture of many, each under its name. */
async function sheet(pictures, theme, width) {
  const page = await browser.newPage({ viewport: { width, height: 100 } });
  const figures = pictures.map(
    ({ name, width, picture }) =>
      `<figure><figcaption>${name}</figcaption><img width="${width}" src="data:image/png;base64,${picture.toString('base64')}"></figure>`,
  );
  const [ground, ink] = theme === 'light' ? ['#b7bfc9', '#1b1c1e'] : ['#0e0f10', '#eeeef0'];
  await page.setContent(
    `<style>body{background:${ground};color:${ink};display:flex;flex-wrap:wrap;gap:16px;align-items:start;margin:16px;font:11px Inter,sans-serif}
      figure{margin:0}figcaption{margin-bottom:4px}img{border-radius:10px;display:block}</style>${figures.join('')}`,
  );
  await page.waitForFunction(() => [...document.images].every((image) => image.complete));
  const picture = await page.screenshot({ fullPage: true });
  await page.close();
  return picture;
}

if (folder) {
  mkdirSync(folder, { recursive: true });
  for (const shot of shots.filter((shot) => names.length === 0 || names.some((name) => shot.name.startsWith(name)))) {
    for (const theme of themes) {
      for (const language of languages) {
        const { name, picture } = await photograph(shot, theme, language, 2);
        writeFileSync(`${folder}/${name}-${theme}-${language}.png`, picture);
      }
    }
  }
} else {
  const to = fileURLToPath(new URL('../../docs/screens/', import.meta.url));
  mkdirSync(to, { recursive: true });
  const groups = {
    panel: [/^(panel|account|activity-panel)/, 1520],
    windows: [/^(activity$|connect)/, 1888],
    onboarding: [/^onboarding/, 1984],
    settings: [/^settings/, 1488],
  };
  for (const [group, [names, width]] of Object.entries(groups)) {
    for (const theme of themes) {
      for (const language of languages) {
        const pictures = [];
        for (const shot of shots.filter((shot) => names.test(shot.name))) pictures.push(await photograph(shot, theme, language, 1));
        writeFileSync(`${to}${group}-${theme}-${language}.png`, await sheet(pictures, theme, width));
      }
    }
  }
  const five = shots.find((shot) => shot.name === 'panel-five');
  const pair = [await photograph(five, 'light', 'en', 2), await photograph(five, 'dark', 'ko', 2)];
  writeFileSync(`${to}panel.png`, await sheet(pair.map((one) => ({ ...one, name: '' })), 'light', 784));
  // A third of the size, where it is installed: these are kept in git.
  spawnSync('pngquant', ['--force', '--ext', '.png', '--skip-if-larger', ...readdirSync(to).map((file) => to + file)]);
}
await browser.close();
server.close();
