import { beforeAll, describe, expect, test } from 'vitest';

import { faults, sources, table } from '../../scripts/locales.mjs';
import { load, particle, runs, translate } from './i18n';

beforeAll(() => Promise.all([load('en'), load('ko')]));

test('a count chooses its form', () => {
  expect(translate('en', 'panel.accounts', { n: 1 })).toBe('1 account');
  expect(translate('en', 'panel.accounts', { n: 5 })).toBe('5 accounts');
  expect(translate('ko', 'panel.accounts', { n: 1 })).toBe('계정 1개');
});

test.each([
  ['회사', '회사가'],
  ['집', '집이'],
  ['Work', 'Work가'],
  ['Mac', 'Mac이'],
  ['계정 2', '계정 2가'],
  ['계정 3', '계정 3이'],
  ['20%', '20%가'],
])('after %s stands %s', (word, want) => {
  expect(word + particle(word, '이', '가')).toBe(want);
});

test('ㄹ counts as open before 로', () => {
  expect(['서울', '집', '회사'].map((word) => particle(word, '으로', '로'))).toEqual(['로', '으로', '로']);
});

test('a part stands out, or is what one types', () => {
  expect(runs('until <b>Thu</b> with <code>claude</code> < 1')).toEqual([
    { text: 'until ', as: 'plain' },
    { text: 'Thu', as: 'strong' },
    { text: ' with ', as: 'plain' },
    { text: 'claude', as: 'code' },
    { text: ' ', as: 'plain' },
    { text: '<', as: 'plain' },
    { text: ' 1', as: 'plain' },
  ]);
});

describe('the languages', () => {
  test('agree, and every text is used', () => {
    expect(faults(table('en'), table('ko'), sources())).toEqual([]);
  });

  test('are found out where they do not', () => {
    const en = { 'a.same': 'x', 'a.only': 'x', 'a.hole': '{n} of {all}', 'a.idle': 'x', 'a.tag': '<b>x</b>', 'tray.open': 'x' };
    const ko = { 'a.same': 'x', 'a.hole': '{n}', 'a.idle': ' ', 'a.tag': 'x', 'tray.open': 'x', 'a.extra': 'x' };
    const used = ["t('a.same') t('a.only') t(`a.${hole}`) t('a.tag')"];
    expect(faults(en, ko, used).sort()).toEqual([
      'a.hole has [{all {n] in en and [{n] in ko',
      'a.tag has [</b> <b>] in en and [] in ko',
      'en lacks a.extra',
      'ko has no words for a.idle',
      'ko lacks a.only',
    ]);
    expect(faults({ 'a.idle': 'x' }, { 'a.idle': 'x' }, ["t('a.same')"])).toEqual(['a.idle is not used']);
  });
});
