// Fails where a page's scripts and styles, compressed, are larger than they may be.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const BUDGET = { 'panel.html': 60_000, 'settings.html': 90_000, 'onboarding.html': 90_000, 'connect.html': 90_000, 'activity.html': 90_000 };

const dist = fileURLToPath(new URL('../dist/', import.meta.url));
const manifest = JSON.parse(readFileSync(`${dist}manifest.json`, 'utf8'));

/** Every file that an entry loads, one language among them: the larger. */
function files(name, seen = new Set()) {
  const entry = manifest[name];
  if (!entry || seen.has(entry.file)) return seen;
  seen.add(entry.file);
  for (const style of entry.css ?? []) seen.add(style);
  for (const other of entry.imports ?? []) files(other, seen);
  const later = (entry.dynamicImports ?? []).filter((other) => manifest[other]).sort((one, other) => size(one) - size(other));
  if (later.length > 0) files(later.at(-1), seen);
  return seen;
}

const zipped = (file) => gzipSync(readFileSync(dist + file)).length;
const size = (name) => zipped(manifest[name].file);

let over = false;
for (const [page, most] of Object.entries(BUDGET)) {
  const loaded = [...files(page)];
  if (loaded.length === 0) throw new Error(`${page} was not built`);
  const whole = loaded.reduce((sum, file) => sum + zipped(file), 0);
  console.log(`${page.padEnd(16)} ${(whole / 1_000).toFixed(1).padStart(6)} kB of ${most / 1_000} kB`);
  over ||= whole > most;
}
if (over) {
  console.error('budget: a page is too large');
  process.exit(1);
}
