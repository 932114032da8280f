import { fireEvent, render, screen, within } from '@testing-library/svelte';
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
  expect(text()).toContain('Room to spare until its week resets Thu 09:00.');
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
  expect(text()).toContain('No numbers yet, so all count alike.');
  expect(text()).toContain('Just started');
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
  expect(text()).toContain('Enough room until its resets. Numbers are from 13:52.');
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
  await show(snapshot('unnamed'), { preferences: { ...facts.preferences, hideNames: true } });
  render(Panel);
  expect(text()).toContain('Account 2');
  expect(text()).not.toMatch(/Work|Home/);
  expect(text()).toContain('Lab');
  // Where this machine is, is nobody's business either; it can still be copied.
  expect(text()).not.toContain('100.84.12.1');
  screen.getByRole('button', { name: 'Copy the router’s address' }).click();
  expect(said).toEqual([{ invoke: 'copy', text: 'http://100.84.12.1:18787', concealed: false }]);
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

test('the menu pauses and resumes routing, opens the settings and quits', async () => {
  for (const [state, first, verb] of [['five', 'Pause routing', 'pause'], ['paused', 'Resume routing', 'resume']] as const) {
    await show(snapshot(state));
    const { unmount } = render(Panel);
    const open = async () => {
      screen.getByRole('button', { name: 'Menu' }).click();
      await tick();
      await tick();
    };
    await open();
    expect(document.activeElement?.textContent).toBe(first);
    expect(screen.getAllByRole('menuitem').map((item) => item.textContent)).toEqual([first, 'Settings…', 'Quit']);
    await fireEvent.keyDown(document.activeElement!, { key: 'ArrowUp' });
    expect(document.activeElement?.textContent).toBe('Quit');
    await fireEvent.keyDown(document.activeElement!, { key: 'Escape' });
    expect(screen.queryByRole('menu')).toBeNull();
    expect(said).toEqual([]);
    for (const item of [first, 'Settings…', 'Quit']) {
      await open();
      screen.getByRole('menuitem', { name: item }).click();
      await tick();
    }
    expect(said).toEqual([{ verb }, { invoke: 'open_window', name: 'settings' }, { invoke: 'quit' }]);
    unmount();
  }
});

test('what keeps other devices out is asked first, and may be left', async () => {
  await show(snapshot('address-gone'));
  render(Panel);
  screen.getByRole('button', { name: 'Only this Mac…' }).click();
  await tick();
  expect(text()).toContain('Other devices stay out');
  screen.getByRole('button', { name: 'Keep' }).click();
  await tick();
  expect(said).toEqual([]);
  screen.getByRole('button', { name: 'Only this Mac…' }).click();
  await tick();
  screen.getByRole('button', { name: 'Only this Mac' }).click();
  await new Promise((done) => setTimeout(done));
  expect(said).toEqual([{ verb: 'set', key: 'host', value: '127.0.0.1' }, { invoke: 'start_router' }]);
});

test('a service that runs is left alone until it is meant; nothing is said of what is not known', async () => {
  await show(snapshot('none'), { router: { state: 'heldByService' } });
  render(Panel);
  expect(text()).not.toMatch(/Not read yet|Connect a device/);
  screen.getByRole('button', { name: 'Stop it…' }).click();
  await tick();
  expect(said).toEqual([]);
  screen.getByRole('button', { name: 'Stop it and start here' }).click();
  await new Promise((done) => setTimeout(done));
  expect(said).toEqual([{ invoke: 'take_over' }]);
});

test('while an address is away this machine is served, and only it', async () => {
  await show(snapshot('address-gone'));
  render(Panel);
  expect(screen.getByTestId('status').dataset['live']).toBe('true');
  expect(text()).toContain('Only this Mac · 38 requests this hour');
});

test('nobody is said to be active where nothing listens', async () => {
  await show(snapshot('port-busy'));
  render(Panel);
  expect(text()).toContain('38 requests this hour');
  expect(text()).not.toContain('active');
});

test('old numbers say from when they are, in the answer and at the foot', async () => {
  await show(snapshot('throttled'));
  render(Panel);
  expect(text()).toContain('Next request goes to at 12:40');
  expect(text()).toContain('Numbers from 12:40');
  expect(text()).not.toContain('Updated');
});

test('a number that answers do not bring says from when it is, and the others do not', async () => {
  const three = snapshot('three');
  const seat = three.seats.find((one) => three.next.kind === 'seat' && one.id === three.next.seat)!;
  const family = { ...seat.windows[0]!, kind: 'model', family: 'Opus', used: 100, observedAt: three.now - 74 * 60 };
  seat.windows = [...seat.windows.filter((window) => window.kind !== 'model'), family];
  await show(three);
  render(Panel);
  const lines = [...document.querySelectorAll('li')].map((line) => line.textContent ?? '');
  const old = lines.filter((line) => line.includes('at 12:40'));
  expect(old).toHaveLength(1);
  expect(old[0]).toContain('Opus');
  expect(text()).toContain('Updated');
});

test('a problem with which devices are served all the same is told in either language, in no words of the router', async () => {
  const kinds = ['devicesDamaged', 'overloaded', 'throttled', 'loginsRefused', 'challenged', 'wrongPlace', 'storeMovedAside', 'storeTakesNothing', 'noStore'] as const;
  const said = new Set<string>();
  for (const kind of kinds) {
    for (const language of ['en', 'ko'] as const) {
      const problem = { kind, words: 'the router’s own words', address: null, holder: null, since: null };
      await show({ ...snapshot('three'), problems: [problem] }, { language });
      const { unmount } = render(Panel);
      const line = screen.getByTestId('status').querySelector('.line')?.textContent ?? '';
      expect(line).not.toContain(problem.words);
      said.add(line);
      unmount();
    }
  }
  // Whether it cannot be opened or takes nothing, what it means is the same.
  expect(said.size).toBe(2 * (kinds.length - 1));
});

test('a setting that was refused is named in words, in either language, with the way to it', async () => {
  await show(snapshot('settings-refused'));
  const { unmount } = render(Panel);
  expect(text()).toContain('A setting was not applied: the limit must be 1–100%.');
  screen.getByRole('button', { name: 'Open Settings' }).click();
  expect(said).toEqual([{ invoke: 'open_window', name: 'settings' }]);
  unmount();
  await show(snapshot('settings-refused'), { language: 'ko' });
  render(Panel);
  expect(text()).toContain('적용하지 못한 설정이 있어요: 한도는 1–100%여야 해요.');
});

test('where no account is the answer the first line says what the percents are', async () => {
  await show(snapshot('paused'));
  render(Panel);
  screen.getByRole('button', { name: 'used' }).click();
  await tick();
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'app.percent', value: 'left' }]);
});

test('shown whole, a full limit says when the account is back, once', async () => {
  await show(snapshot('three'));
  render(Panel);
  expect(text().match(/back 16:20/g)).toHaveLength(1);
  expect(text()).not.toContain('2 h 26 m');
});

test('why the next one is next goes by what is known of it', async () => {
  const shown = snapshot('five');
  shown.next = { kind: 'seat', seat: 'acc-0/org-0', why: 'mostRoom' };
  await show(shown);
  render(Panel);
  expect(text()).toContain('Most room left: 37% of its weekly limit.');
  live.show({ ...shown, next: { kind: 'seat', seat: 'acc-0/org-0', why: 'onlyOne' } });
  await tick();
  expect(text()).toContain('The only account that can serve now.');
});

test('in Korean the day stands before the time', async () => {
  await show(snapshot('all-resting'), { language: 'ko' });
  render(Panel);
  expect(text()).toContain('오늘 16:20');
});
