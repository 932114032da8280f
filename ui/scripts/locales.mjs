// Fails where the languages differ in keys or placeholders, or where a text is not used, or not there.
// The texts under `tray.` and `notify.` are the shell's, whose own test looks after their use.
import { readFileSync, readdirSync } from 'node:fs';
import { extname, join } from 'node:path';

const src = join(import.meta.dirname, '../src');

/** The forms of a text: one, or one per count. */
const forms = (text) => (typeof text === 'string' ? [text] : Object.values(text));

/** The names in braces and the tags that a text has. */
export function holes(text) {
  const names = (form) => form.match(/\{\w+|<\/?\w+>/g) ?? [];
  return [...new Set(forms(text).flatMap(names))].sort().join(' ');
}

/** What is wrong between two languages and the sources that use them. */
export function faults(en, ko, sources) {
  const found = [];
  for (const key of new Set([...Object.keys(en), ...Object.keys(ko)])) {
    if (!(key in ko)) found.push(`ko lacks ${key}`);
    else if (!(key in en)) found.push(`en lacks ${key}`);
    else if (holes(en[key]) !== holes(ko[key])) found.push(`${key} has [${holes(en[key])}] in en and [${holes(ko[key])}] in ko`);
    for (const [language, table] of [['en', en], ['ko', ko]]) {
      if (key in table && forms(table[key]).some((form) => typeof form !== 'string' || form.trim() === '')) {
        found.push(`${language} has no words for ${key}`);
      }
    }
  }
  const text = sources.join('\n');
  const quoted = new Set([...text.matchAll(/['"`]([a-z][A-Za-z]*\.[A-Za-z]+)['"`]/g)].map(([, key]) => key));
  // `pin.${kind}` uses every key of that form.
  const patterns = [...text.matchAll(/`([a-z][A-Za-z]*\.[A-Za-z]*)\$\{[^}]*\}([A-Za-z]*)`/g)].map(
    ([, head, tail]) => new RegExp(`^${head.replace('.', '\\.')}[A-Za-z]+${tail}$`),
  );
  for (const key of Object.keys(en)) {
    if (/^(tray|notify)\./.test(key)) continue;
    if (!quoted.has(key) && !patterns.some((pattern) => pattern.test(key))) found.push(`${key} is not used`);
  }
  return found;
}

export function sources(folder = src) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return sources(path);
    return ['.ts', '.svelte'].includes(extname(path)) && !path.endsWith('.test.ts') ? [readFileSync(path, 'utf8')] : [];
  });
}

export const table = (language) => JSON.parse(readFileSync(join(src, `locales/${language}.json`), 'utf8'));

if (process.argv[1] === import.meta.filename) {
  const found = faults(table('en'), table('ko'), sources());
  if (found.length > 0) {
    console.error(found.map((fault) => `locales: ${fault}`).join('\n'));
    process.exit(1);
  }
}
