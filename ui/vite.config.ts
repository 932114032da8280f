import { svelte } from '@sveltejs/vite-plugin-svelte';
import { svelteTesting } from '@testing-library/svelte/vite';
import { defineConfig } from 'vitest/config';

// The tests' clock counts to twenty-four wherever they run; the workers are given this with their environment.
if (process.env['VITEST']) process.env['LC_ALL'] = 'en_GB.UTF-8';

const pages = ['panel', 'settings', 'onboarding', 'connect', 'activity'];

export default defineConfig({
  // The pages are loaded from disk, wherever that is.
  base: './',
  plugins: [svelte(), svelteTesting()],
  build: {
    target: 'safari16.4',
    // The page's policy forbids inline scripts and data: scripts.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // The budget goes by the manifest: what each page loads.
    manifest: 'manifest.json',
    rollupOptions: { input: pages.map((page) => `${page}.html`) },
  },
  test: { environment: 'happy-dom', include: ['src/**/*.test.ts'], setupFiles: ['src/testing/shell.ts'], restoreMocks: true, env: { TZ: 'UTC' } },
});
