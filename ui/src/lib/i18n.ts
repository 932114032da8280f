// The words on screen. Both languages come from `locales/`, which the shell reads as well.

import type en from '../locales/en.json';
import type { Language } from './format';

export type Key = keyof typeof en;
export type Values = Record<string, string | number>;

/** A sentence, or its forms by count. */
type Text = string | Partial<Record<Intl.LDMLPluralRule, string>>;
type Table = Record<Key, Text>;

const sources: Record<Language, () => Promise<{ default: Table }>> = {
  en: () => import('../locales/en.json'),
  ko: () => import('../locales/ko.json'),
};
const tables: Partial<Record<Language, Table>> = {};

/** Fetches a language, once. A page shows nothing in a language before. */
export async function load(language: Language): Promise<void> {
  tables[language] ??= (await sources[language]()).default;
}

/** The text of `key`. A text with forms goes by the value `n`. */
export function translate(language: Language, key: Key, values: Values = {}): string {
  const text = tables[language]?.[key] ?? key;
  const chosen =
    typeof text === 'string' ? text : (text[new Intl.PluralRules(language).select(Number(values['n']))] ?? text.other ?? '');
  return chosen.replace(/\{(\w+)(?::([^/}]+)\/([^}]+))?\}/g, (_, name: string, closed?: string, open?: string) => {
    const value = String(values[name] ?? '');
    return closed === undefined || open === undefined ? value : value + particle(value, closed, open);
  });
}

/** The Korean particle after `word`: `closed` where its last syllable ends in a consonant, else `open`. */
export function particle(word: string, closed: string, open: string): string {
  const last = word.replace(/<\/?b>|[)\]"'”’]+$/g, '').at(-1) ?? '';
  const code = last.charCodeAt(0);
  const ending = code >= 0xac00 && code <= 0xd7a3 ? (code - 0xac00) % 28 : endings[last.toLowerCase()];
  // ㄹ counts as open before 로.
  return !ending || (ending === 8 && open === '로') ? open : closed;
}

/** How digits and the Latin letters that are read with a consonant at their end are taken; 8 is ㄹ. */
const endings: Record<string, number> = { 0: 21, 1: 8, 3: 16, 6: 1, 7: 8, 8: 8, c: 1, l: 8, m: 16, n: 4, p: 17, '%': 0 };

export type Run = { text: string; as: 'plain' | 'strong' | 'code' };

/** `text` as runs of plain, **strong** (`<b>…</b>`) and typed (`<code>…</code>`) text. */
export function runs(text: string): Run[] {
  return [...text.matchAll(/<b>(.*?)<\/b>|<code>(.*?)<\/code>|[^<]+|</g)].map(([whole, strong, code]) =>
    strong !== undefined ? { text: strong, as: 'strong' } : code !== undefined ? { text: code, as: 'code' } : { text: whole, as: 'plain' },
  );
}
