import { svelte } from '@sveltejs/vite-plugin-svelte';
import { svelteTesting } from '@testing-library/svelte/vite';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

import { sources } from './scripts/locales.mjs';

// The tests' clock counts to twenty-four wherever they run; the workers are given this with their environment.
if (process.env['VITEST']) process.env['LC_ALL'] = 'en_GB.UTF-8';

const pages = ['panel', 'settings', 'onboarding', 'connect', 'activity'];

/** Keeps the texts that the shell alone says, in its menu and banners, out of the pages. */
function pagesTexts(): Plugin {
  const used = sources().join('\n');
  return {
    name: 'pages-texts',
    enforce: 'pre',
    transform(text, id) {
      if (!/locales\/\w+\.json$/.test(id)) return null;
      const all = Object.entries(JSON.parse(text) as Record<string, unknown>);
      return JSON.stringify(Object.fromEntries(all.filter(([key]) => !/^(tray|notify)\./.test(key) || used.includes(`'${key}'`))));
    },
  };
}

export default defineConfig({
  // The pages are loaded from disk, wherever that is.
  base: './',
  plugins: [pagesTexts(), svelte(), svelteTesting()],
  build: {
    target: 'safari16.4',
    // The page's policy forbids inline scripts and data: scripts.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // The budget goes by the manifest: what each page loads.
    manifest: 'manifest.json',
    rollupOptions: {
      input: pages.map((page) => `${page}.html`),
      // What pages share is one file: a few more bytes for some, fewer for the panel, which has the least room. The check is
      // not among it: the panel has none.
      output: { codeSplitting: { groups: [{ name: 'open', test: /node_modules|src.(lib|parts|activity)/, minShareCount: 2 }] } },
    },
  },
  test: { environment: 'happy-dom', include: ['src/**/*.test.ts'], setupFiles: ['src/testing/shell.ts'], restoreMocks: true, env: { TZ: 'UTC' } },
});
