// Photographs every screen. Arguments: a folder, then names to keep to; without names, those that are kept in git.
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { chromiumPath, launch, open, serve, snapshots } from './shell.mjs';
import { opening, pose, shots } from './shots.mjs';

const folder = process.argv[2] ?? fileURLToPath(new URL('../../docs/screens', import.meta.url));
const only = process.argv.slice(3);
const themes = (process.env.THEMES ?? 'light,dark').split(',');
const languages = (process.env.LANGUAGES ?? 'en,ko').split(',');

if (!chromiumPath()) {
  console.error('screens: no Chromium here');
  process.exit(1);
}
mkdirSync(folder, { recursive: true });
const [server, browser] = [await serve(), await launch()];
for (const shot of shots.filter((shot) => only.length === 0 || only.some((name) => shot.name.startsWith(name)))) {
  for (const theme of themes) {
    for (const language of languages) {
      const page = await open(browser, server.url, opening(shot, { theme, language, scale: Number(process.env.SCALE ?? 1) }));
      await pose(page, shot, snapshots);
      if (shot.page === 'panel') {
        const height = await page.evaluate(() => Math.min(document.querySelector('.page').offsetHeight, 700));
        await page.setViewportSize({ width: 360, height });
      }
      await page.screenshot({ path: `${folder}/${shot.name}-${theme}-${language}.png` });
      if (page.complaints.length > 0) console.error(shot.name, theme, language, page.complaints);
      await page.context().close();
    }
  }
}
await browser.close();
server.close();
