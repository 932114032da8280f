import { fireEvent, render, screen } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import { saidOf, show } from '../testing/shell';
import { snapshot } from '../testing/snapshots';
import Activity from './Activity.svelte';
import Push from './Push.svelte';

const now = snapshot('five').now;
const plain = () => document.body.textContent?.replaceAll('\u202f', ' ').replace(/\s+/g, ' ') ?? '';

const request = (number: number, more: object) => ({
  number, at: now - 60, device: 'MacBook Pro', model: 'claude-fable-5', seat: 'Work', status: 200, reason: 'same conversation',
  tokens: { input: 1_000, output: 400, cacheRead: 0, cacheWrite: 0 }, wholeMs: 2_140, end: 'whole', retries: 0, attempts: [], ...more,
});

async function open(page: typeof Activity | typeof Push, requests: object[], switches: object[] = []) {
  await show(snapshot('five'), {}, { requests, switches });
  if (page === Push) render(Push, { snapshot: snapshot('five') });
  else render(Activity);
  await new Promise((done) => setTimeout(done));
}

test.each([
  ['what moved it', { reason: 'room to spare this week' }, 'Side reached its 5-hour limit'],
  ['who reached a limit on the way', { number: 2, reason: 'took over', attempts: [{ seat: 'Home', cameOfIt: 'weekly limit reached' }] }, 'Home reached its weekly limit'],
  ['who could not serve it', { number: 2, reason: 'took over', attempts: [{ seat: 'Home', cameOfIt: 'no answer' }] }, 'Home could not serve it'],
  ['that no other was ready for the model', { number: 2, reason: 'only seat' }, 'Only account ready for Fable'],
  ['what the router went by', { number: 2, reason: 'room to spare this week' }, 'Room to spare this week'],
  ['that an account’s answer was the best there was', { number: 2, reason: 'handed on', status: 529 }, 'No other account could take it.'],
  ['what kept all from serving it', { number: 2, reason: 'all_full', status: 429, seat: null }, 'Every account is at its limit'],
])('why a request went there is %s', async (_, more, words) => {
  await open(Activity, [request(1, more)], [{ at: now - 60, request: 1, from: 'Side', to: 'Work', cause: 'limit', words: '5-hour limit reached' }]);
  expect(document.querySelector('tbody tr')?.textContent).toContain(words);
});

test('a limit is said in words, and that no switch lost a request where that is known', async () => {
  const moved = { at: now - 60, request: 1, from: 'Side', to: 'Work', cause: 'limit', words: '' };
  await open(Activity, [request(1, {}), request(2, { status: 429, tokens: null })], [moved]);
  expect(plain()).toContain('1 switch, none lost a request');
  expect(plain()).toContain('at its limit');
  expect(plain()).not.toContain('429');
});

test('the list can be held, which pauses nothing else', async () => {
  await open(Activity, []);
  screen.getByRole('button', { name: 'Hold list' }).click();
  await tick();
  expect(screen.getByRole('button', { name: 'Follow again' })).toBeTruthy();
  expect(saidOf('pause')).toEqual([]);
});

test('in the panel tokens have their unit, and one device can be looked at', async () => {
  await open(Push, [request(1, {})]);
  expect(plain()).toContain('1.4 k tokens · 2.1 s');
  await fireEvent.change(screen.getByRole('combobox', { name: 'Device' }), { target: { value: 'd2' } });
  await new Promise((done) => setTimeout(done));
  expect(saidOf('requests').at(-1)).toEqual({ verb: 'requests', limit: 500, device: 'd2' });
});
