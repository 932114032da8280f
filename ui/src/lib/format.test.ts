import { describe, expect, test } from 'vitest';

import { addressBeside, countdown, DASH, family, hour, middle, moment, ordinal, percent, plan, reset, seconds, span, thousands, time, tokens, took, weekday, type Style } from './format';

const en: Style = { language: 'en', hour12: false, zone: 'UTC', percent: 'used', resets: 'left' };
const ko: Style = { ...en, language: 'ko' };
const at = (text: string) => Date.parse(text) / 1_000;
const NOW = at('2026-12-01T13:54:00Z');
const plain = (text: string) => text.replaceAll('\u202f', ' ');

describe('shares', () => {
  test.each([
    [4_100, '41%', '59%'],
    [9_999, '99%', '1%'],
    [10_000, '100%', '0%'],
    [12_300, '100%', '0%'],
    [0, '0%', '100%'],
  ])('%d basis points are %s used and %s left', (basisPoints, used, left) => {
    expect(percent(basisPoints, en)).toBe(used);
    expect(percent(basisPoints, { percent: 'left' })).toBe(left);
  });

  test('GU-03: what is not known is a dash, in both ways of counting', () => {
    for (const style of [en, { ...en, percent: 'left' as const }]) {
      expect([percent(null, style), percent(undefined, style), reset(null, NOW, style)]).toEqual([DASH, DASH, DASH]);
    }
  });
});

describe('times', () => {
  test.each([
    [59, '1 m', '1분'],
    [60, '1 m', '1분'],
    [3_600, '1 h', '1시간'],
    [7_800, '2 h 10 m', '2시간 10분'],
    [3_720, '1 h 02 m', '1시간 2분'],
    [90_000, '1 d 1 h', '1일 1시간'],
    [0, '0 m', '0분'],
    [-5, '0 m', '0분'],
  ])('%d seconds are %s', (length, inEnglish, inKorean) => {
    expect(plain(span(length, 'en'))).toBe(inEnglish);
    expect(plain(span(length, 'ko'))).toBe(inKorean);
  });

  test('GU-01: a reset that is told a second earlier or later reads the same', () => {
    const one = at('2026-12-01T16:03:59Z');
    for (const style of [en, { ...en, resets: 'clock' as const }]) {
      expect(reset(one, NOW, style)).toBe(reset(one + 1, NOW, style));
    }
    expect(moment(one, NOW, en)).toBe('16:04');
  });

  test.each([
    ['Asia/Seoul', false, '01:20', '2026-12-01T16:20:00Z'],
    ['Asia/Seoul', true, '1:20 AM', '2026-12-01T16:20:00Z'],
    ['America/New_York', true, '11:20 AM', '2026-12-01T16:20:00Z'],
    ['America/New_York', false, '11:20', '2026-12-01T16:20:00Z'],
    ['UTC', true, '12:05 AM', '2026-12-02T00:05:00Z'],
    ['UTC', false, '00:05', '2026-12-02T00:05:00Z'],
  ])('GU-02: in %s, counting to twelve %s, it is %s', (zone, hour12, words, when) => {
    expect(plain(time(at(when), { ...en, zone, hour12 }))).toBe(words);
  });

  test('GU-02: Korean has its own halves of the day', () => {
    expect(plain(time(at('2026-12-01T16:20:00Z'), { ...ko, hour12: true }))).toBe('오후 4:20');
    expect(time(at('2026-12-01T16:20:00Z'), ko)).toBe('16:20');
  });

  test('GU-02: another day has its weekday, another week its date', () => {
    expect(moment(at('2026-12-03T09:00:00Z'), NOW, en)).toBe('Thu 09:00');
    expect(moment(at('2026-12-03T09:00:00Z'), NOW, ko, 'long')).toBe('목요일 09:00');
    expect(moment(at('2026-12-09T09:00:00Z'), NOW, en)).toBe('Dec 9 09:00');
    expect(weekday(at('2026-12-03T09:00:00Z'), ko)).toBe('목');
    // Tomorrow in Seoul, today in UTC.
    expect(moment(at('2026-12-01T16:20:00Z'), NOW, { ...en, zone: 'Asia/Seoul' })).toBe('Wed 01:20');
  });

  test('GU-08: over the change of the clocks, the time left is the time that passes', () => {
    const style: Style = { ...en, zone: 'Europe/Berlin' };
    // 25 October 2026, 03:00 summer time becomes 02:00: two hours pass between 01:30 and 02:30.
    const [before, after] = [at('2026-10-24T23:30:00Z'), at('2026-10-25T01:30:00Z')];
    expect(plain(countdown(after, before, 'en'))).toBe('2 h');
    expect(reset(after, before, { ...style, resets: 'clock' })).toBe('02:30');
    // 29 March 2026: one hour passes between 01:30 and 03:30.
    const [spring, later] = [at('2026-03-29T00:30:00Z'), at('2026-03-29T01:30:00Z')];
    expect(plain(countdown(later, spring, 'en'))).toBe('1 h');
    expect(reset(later, spring, { ...style, resets: 'clock' })).toBe('03:30');
  });

  test('a reset within the day counts down, a later one names its day', () => {
    expect(plain(reset(NOW + 7_800, NOW, en))).toBe('2 h 10 m');
    expect(reset(NOW + 7_800, NOW, { ...en, resets: 'clock' })).toBe('16:04');
    expect(reset(at('2026-12-03T09:00:00Z'), NOW, en)).toBe('Thu 09:00');
  });

  test('an axis names its hours alone', () => {
    const four = at('2026-12-01T16:00:00Z');
    expect([hour(four, en), hour(four, ko), plain(hour(four, { ...en, hour12: true })), plain(hour(four, { ...ko, hour12: true }))]).toEqual(['16', '16', '4 PM', '16']);
  });

  test('what has been keeps its own minute', () => {
    expect(moment(at('2026-12-01T13:53:48Z'), NOW, en)).toBe('13:53');
  });
});

test('counts are short', () => {
  expect([tokens(40), tokens(400), tokens(48_200), tokens(612_000), tokens(1_204_000), tokens(null)].map(plain)).toEqual(['40', '0.4 k', '48.2 k', '612 k', '1.2 M', DASH]);
  expect([thousands(3_415), thousands(212), thousands(1_234_567)].map(plain)).toEqual(['3 415', '212', '1 234 567']);
  expect([seconds(2_140, 'en'), seconds(2_140, 'ko')].map(plain)).toEqual(['2.1 s', '2.1초']);
  expect([took(0, 'en'), took(212, 'en'), took(2_140, 'en')].map(plain)).toEqual(['< 1 ms', '212 ms', '2.1 s']);
});

test('names are short', () => {
  expect(['claude-opus-5-5', 'claude-3-5-sonnet-20241022', 'gpt'].map(family)).toEqual(['Opus', 'Sonnet', 'Gpt']);
  expect(['max', 'Max 20x', 'default_claude_max_5x', 'team', 'a plan of its own'].map(plan)).toEqual(['Max', 'Max 20x', 'Max 5x', 'Team', 'a plan of its own']);
  expect([1, 2, 3, 4, 11, 21].map(ordinal)).toEqual(['1st', '2nd', '3rd', '4th', '11th', '21st']);
  const long = 'a-rather-long-machine-name.tailnet-example.ts.net:18787';
  expect(middle(long, 32)).toMatch(/^a-rather-long-ma…/);
  expect(middle(long, 32)).toHaveLength(32);
  expect(middle(long, 32).endsWith(':18787')).toBe(true);
  expect(middle('localhost:18787', 32)).toBe('localhost:18787');
});

test('an address takes what its title leaves, keeps its port, and goes where only a stump would be left', () => {
  const address = '[fd7a:115c:a1e0:ab12:4843:cd96:6254:c01]:18787';
  expect(addressBeside('Routing', '100.84.12.1:18787')).toBe('100.84.12.1:18787');
  expect(addressBeside('Routing', address)).toMatch(/^\[fd7a.*….*:18787$/);
  expect(addressBeside('Anthropic에 연결할 수 없어요', '100.84.12.1:18787')).toBe('100.84.12.1:18787');
  expect(addressBeside('Anthropic에 연결할 수 없어요', address, 40)).toBe('');
});
