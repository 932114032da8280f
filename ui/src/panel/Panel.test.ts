import { render, screen, within } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import { live } from '../lib/live.svelte';
import { place } from '../lib/place.svelte';
import { said, saidOf, show } from '../testing/shell';
import { facts, snapshot, states } from '../testing/snapshots';
import Panel from './Panel.svelte';

const plain = (text: string | null) => (text ?? '').replaceAll('\u202f', ' ').replace(/\s+/g, ' ').trim();
const text = () => plain(document.body.textContent);
const row = (name: string) => within(screen.getByRole('button', { name: new RegExp(`^${name}`) }).closest('li') as HTMLElement);

test('one look says who serves next, how full it is, and why', async () => {
  await show(snapshot('five'));
  render(Panel);
  expect(plain(screen.getByTestId('next').textContent)).toBe('Work Max 20x');
  expect(text()).toContain('41% used');
  expect(text()).toContain('Most room left.');
  expect(text()).toContain('5 accounts · enough until Thu 14:00 at this pace');
  expect(screen.getByTestId('status').dataset['live']).toBe('true');
  expect(plain(screen.getByTestId('switch').textContent)).toBe('13:52 Side Work Side reached its 5-hour limit');
});

test('SC-04: no state shows an e-mail address or a directory', async () => {
  for (const state of states) {
    await show(snapshot(state));
    const { unmount } = render(Panel);
    expect(document.body.innerHTML, state).not.toMatch(/@example\.test|\/Users\//);
    unmount();
  }
});

test('meters say in words what they show', async () => {
  await show(snapshot('five'));
  render(Panel);
  const [five] = screen.getAllByRole('meter');
  expect(five?.getAttribute('aria-valuetext')).toBe('41% used, even pace 56%');
  expect(row('Home').getByRole('meter').getAttribute('aria-valuenow')).toBe('44');
});

test('GU-03: before the first reading there are dashes and bare tracks, never a zero', async () => {
  await show(snapshot('first-load'));
  render(Panel);
  expect(screen.queryAllByRole('meter')).toHaveLength(0);
  expect(screen.getAllByRole('img', { name: /^5.h: not read yet$/ }).length).toBeGreaterThan(0);
  expect(text()).not.toContain('0%');
  expect(text()).toContain('reading usage');
});

test('all resting: who is back first, and when; nothing is live', async () => {
  await show(snapshot('all-resting'));
  render(Panel);
  expect(text()).toContain('First back Work Max 20x 16:20 today');
  expect(screen.getByTestId('status').dataset['live']).toBe('false');
  screen.getByRole('button', { name: 'Notify me' }).click();
  await tick();
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'app.notify', value: { ...facts.preferences.notify, back: true } }]);
  expect(screen.getByRole('button', { name: 'Will notify' })).toHaveProperty('disabled', true);
});

test('one click turns all percents over, another all resets, and both are remembered', async () => {
  await show(snapshot('five'));
  render(Panel);
  screen.getByRole('button', { name: 'used' }).click();
  await tick();
  expect(text()).toContain('59% left');
  expect(row('Home').getByRole('meter').getAttribute('aria-valuenow')).toBe('56');
  screen.getAllByTitle('Show time left or the time of day')[0]!.click();
  await tick();
  expect(text()).toContain('16:04');
  expect(saidOf('set').map(({ key, value }) => [key, value])).toEqual([['app.percent', 'left'], ['app.resets', 'clock']]);
});

test('a row opens in place: its windows, how old they are, and what can be done', async () => {
  await show(snapshot('five'));
  render(Panel);
  const home = screen.getByRole('button', { name: /^Home/ });
  expect(home.getAttribute('aria-expanded')).toBe('false');
  home.click();
  await tick();
  expect(home.getAttribute('aria-expanded')).toBe('true');
  expect(row('Home').getAllByRole('meter')).toHaveLength(3);
  expect(text()).toContain('Numbers are from 13:52.');
  row('Home').getByRole('button', { name: 'Pause' }).click();
  row('Home').getByRole('button', { name: 'Drain' }).click();
  expect(said).toEqual([{ verb: 'pause', seat: 'acc-1/org-1' }, { verb: 'drain', seat: 'acc-1/org-1' }]);
  row('Home').getByRole('button', { name: 'Details' }).click();
  expect(place.hash).toBe('seat/acc-1%2Forg-1');
});

test('many ready accounts are folded', async () => {
  await show(snapshot('six'));
  render(Panel);
  const more = screen.getByRole('button', { name: '2 more ready' });
  expect(screen.queryByRole('button', { name: /^Travel/ })).toBeNull();
  more.click();
  await tick();
  expect(screen.getByRole('button', { name: /^Travel/ })).toBeTruthy();
});

test('what needs a person has one button, which does it', async () => {
  await show(snapshot('five'));
  render(Panel);
  screen.getByRole('button', { name: 'Allow…, Old laptop' }).click();
  expect(said).toEqual([{ verb: 'rescan' }]);
});

test('an expired login copies the command that mends it', async () => {
  await show(snapshot('needs-login'));
  render(Panel);
  screen.getByRole('button', { name: 'Copy command, Side' }).click();
  expect(said).toEqual([{ invoke: 'copy', text: 'CLAUDE_CONFIG_DIR=/Users/owner/.claude-2 claude' }]);
});

test('ON-01: the next port is tried, and a refusal stands where the button is', async () => {
  const router = { state: 'failed', code: 'portBusy', words: '', port: 18_787, holder: 'node' } as const;
  await show(snapshot('port-busy'), { router }, { set: new Error('`port` is not free.') });
  render(Panel);
  expect(text()).toContain('Port 18787 is used by “node”.');
  screen.getByRole('button', { name: 'Use 18788' }).click();
  await new Promise((done) => setTimeout(done));
  expect(said).toEqual([{ verb: 'set', key: 'port', value: 18_788 }]);
  expect(screen.getByRole('alert').textContent).toBe('`port` is not free.');
});

test('names are hidden but for those that were chosen', async () => {
  const shown = snapshot('five');
  shown.seats[1]!.name = null;
  await show(shown, { preferences: { ...facts.preferences, hideNames: true } });
  render(Panel);
  expect(text()).toContain('Account 2');
  expect(text()).not.toContain('Home');
  expect(text()).toContain('Side');
});

test('Esc goes back first, and closes then', async () => {
  await show(snapshot('five'));
  place.go('activity');
  render(Panel);
  dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
  await tick();
  expect(place.hash).toBe('');
  expect(said.map((one) => one.invoke)).not.toContain('close_window');
  dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
  expect(said.at(-1)).toEqual({ invoke: 'close_window' });
});

test('a new snapshot is all it takes to show a failover', async () => {
  await show(snapshot('five'));
  render(Panel);
  const next = snapshot('five');
  next.next = { kind: 'seat', seat: 'acc-1/org-1', why: 'instead' };
  next.switches.unshift({ at: next.now, from: 'acc-0/org-0', to: 'acc-1/org-1', cause: 'limit', limit: 'weekly' });
  live.show(next);
  await tick();
  expect(plain(screen.getByTestId('next').textContent)).toBe('Home Max 5x');
  expect(plain(screen.getByTestId('switch').textContent)).toBe('13:54 Work Home Work reached its weekly limit');
});

test('Korean is the same page in other words', async () => {
  await show(snapshot('five'), { language: 'ko' });
  render(Panel);
  expect(text()).toContain('계정 5개 · 지금 속도라면 목요일 14:00까지 충분해요');
  expect(text()).toContain('Side가 5시간 한도에 도달했어요');
  expect(text()).toContain('2시간 10분');
});
