import { describe, expect, test } from 'vitest';

import { snapshot } from '../testing/snapshots';
import { tokens } from './csv';
import { masked } from './key';
import { hours, lanes, noneLost, pins } from './timeline';
import type { RequestRow } from './verbs';
import { week } from './week';

test('a key is never seen whole', () => {
  expect(masked('rk-0123456789abcdef3fQ9')).toBe('rk-••••3fQ9');
  expect(masked(null)).toBe('••••••••');
});

test('a spreadsheet gets text where a name looks like a formula', () => {
  const row = { day: '2026-12-01', device: '=HYPERLINK("x"), "y"', model: 'claude-opus-5-5', requests: 2, input: 10, output: 3, cacheRead: 0, cacheWrite: 1 };
  expect(tokens([row])).toBe(
    'day,device,model,requests,input,output,cache_read,cache_write\r\n' +
      `2026-12-01,"'=HYPERLINK(""x""), ""y""",claude-opus-5-5,2,10,3,0,1\r\n`,
  );
});

describe('the week', () => {
  const window = snapshot('five').seats[0]!.windows[1]!;
  const now = snapshot('five').now;

  test('begins seven days before its reset and leads where this pace leads', () => {
    const shape = week(window, [], now)!;
    expect(shape.end - shape.start).toBe(604_800);
    expect(shape.now.y).toBe(0.63);
    expect(shape.ahead).toBeCloseTo(0.63 / shape.now.x);
  });

  test('shows only what was seen within it, in order', () => {
    const at = (days: number, usedBp: number, kind = 'weekly') => ({ at: now - days * 86_400, window: kind, usedBp });
    const shape = week(window, [at(1, 5_000), at(2, 4_000), at(9, 9_000), at(1.5, 100, 'fiveHour')], now)!;
    expect(shape.used.map((point) => point.y)).toEqual([0, 0.4, 0.5, 0.63]);
  });

  test('says nothing of the rest while it is young, and is none before it begins', () => {
    expect(week({ ...window, resetsAt: now + 604_800 - 3_600 }, [], now)?.ahead).toBeNull();
    expect(week({ ...window, resetsAt: null }, [], now)).toBeNull();
    expect(week(undefined, [], now)).toBeNull();
  });
});

describe('the day', () => {
  const request = (seat: string, at: number, status = 200): RequestRow => ({
    number: at, at, seat, status, device: 'x', model: null, reason: 'most room', tokens: null, wholeMs: 1_000, end: 'whole', retries: 0, attempts: [],
  });
  const move = (at: number, from: string, to: string, cause: 'limit' | 'room' = 'limit') => ({ at, request: at, from, to, cause, words: '' });

  test('requests that are close belong to one block, refused ones to none', () => {
    const [lane] = lanes(['a'], [request('a', 100), request('a', 900), request('a', 9_000), request('a', 9_500, 429)], [], 0, 10_000);
    expect(lane!.blocks).toEqual([{ from: 100, to: 901 }, { from: 9_000, to: 9_001 }]);
  });

  test('a switch ends the block that the one before began', () => {
    const [lane] = lanes(['a'], [], [move(5_000, 'a', 'b'), move(1_000, 'c', 'a')], 0, 10_000);
    expect(lane!.blocks).toEqual([{ from: 1_000, to: 5_000 }]);
  });

  test('pins mark what is worth knowing', () => {
    expect(pins([move(5, 'a', 'b'), move(6, 'a', 'b', 'room'), move(-1, 'a', 'b')], 0).map((pin) => pin.at)).toEqual([5]);
  });

  test('that no switch lost a request is said only where the log shows each of them answered', () => {
    const marks = pins([move(5, 'a', 'b'), move(9, 'b', 'a')], 0);
    expect(noneLost(marks, [request('b', 5), request('a', 9)])).toBe(true);
    expect(noneLost(marks, [request('b', 5)])).toBe(false);
    expect(noneLost(marks, [request('b', 5), request('a', 9, 529)])).toBe(false);
    expect(noneLost(marks, [request('b', 5), { ...request('a', 9), end: 'broken' }])).toBe(false);
    expect(noneLost([], [])).toBe(false);
  });

  test('hours fall on the clock of the zone', () => {
    expect(hours(0, 86_400, 4, 9 * 3_600)).toEqual([3, 7, 11, 15, 19, 23].map((hour) => hour * 3_600));
  });
});
