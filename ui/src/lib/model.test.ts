import { describe, expect, test } from 'vitest';

import { facts, snapshot, states, type State } from '../testing/snapshots';
import { isLoopback, isTailscale, lead, loginCommand, others, oldest, row, tightest, windows } from './model';
import { hostsOf, kindOf } from './network';
import { status } from './status';

test('every recorded state has a status and a row for each seat', () => {
  for (const state of states) {
    const shown = snapshot(state);
    expect(status(shown, facts).title, state).toBeTruthy();
    for (const seat of shown.seats) {
      const { words, back_at, staleSince } = row(seat, shown.now);
      expect(words !== null || back_at !== null || staleSince !== null || seat.state.kind === 'ready', `${state}: ${seat.label}`).toBe(true);
    }
  }
});

test.each<[State, string, boolean, string[]]>([
  ['five', 'status.routing', true, []],
  ['none', 'status.noAccount', false, ['act.copyClaude', 'act.rescan']],
  ['all-resting', 'status.resting', false, []],
  ['paused', 'status.paused', false, ['act.resume']],
  ['offline', 'status.offline', false, []],
  ['port-busy', 'status.notListening', false, ['act.usePort', 'act.choose']],
  ['address-gone', 'status.tailscaleOff', true, ['act.openTailscale', 'act.onlyThisMac']],
  ['needs-permission', 'status.nobody', false, []],
  ['settings-refused', 'status.routing', true, ['act.openSettings']],
  ['all-paused', 'status.allPaused', false, []],
])('%s says %s', (state, title, live, buttons) => {
  const said = status(snapshot(state), facts);
  expect([said.title, said.live, said.buttons.map((button) => button.label)]).toEqual([title, live, buttons]);
});

test('ON-01: a busy port names its holder and offers the next one; nothing is ended', () => {
  const router = { state: 'failed', code: 'portBusy', words: '', port: 18_787, holder: 'node' } as const;
  const said = status(snapshot('none'), { ...facts, router });
  expect(said.line).toEqual({ key: 'status.portBusyBy', values: { port: 18_787, holder: 'node' } });
  expect(said.buttons.map((button) => button.act)).toEqual([{ do: 'usePort', port: 18_788 }, { do: 'choosePort' }]);
});

test('a port that the system refuses is not said to be taken, and another one is to be chosen', () => {
  const refused = snapshot('port-busy');
  refused.problems = [{ kind: 'portRefused', words: '', address: '127.0.0.1:80', holder: null, since: null }];
  const said = status(refused, facts);
  expect([said.live, said.line]).toEqual([false, { key: 'status.portRefused', values: { port: 80 } }]);
  expect(said.buttons.map((button) => button.act)).toEqual([{ do: 'choosePort' }]);
});

test('what keeps devices out or ends a service is asked first; a service that runs is no trouble', () => {
  const gone = status(snapshot('address-gone'), facts).buttons;
  expect(gone.map((button) => button.ask?.line)).toEqual([undefined, 'status.onlyThisMacAsk']);
  const held = status(snapshot('none'), { ...facts, router: { state: 'heldByService' } });
  expect([held.glyph, held.buttons[0]?.ask?.yes]).toEqual(['ring', 'act.takeOverYes']);
});

test('what the shell knows comes before what the snapshot says', () => {
  const routing = snapshot('five');
  const title = (other: Partial<typeof facts>) => status(routing, { ...facts, ...other }).title;
  expect(title({ router: { state: 'heldByService' } })).toBe('status.held');
  expect(title({ router: { state: 'starting' } })).toBe('status.starting');
  expect(title({ router: { state: 'failed', code: 'settingsRefused', words: 'x' } })).toBe('status.settingsRefused');
  expect(title({ quitting: true })).toBe('status.quitting');
  expect(status(routing, { ...facts, crash: { at: 1 } }).line).toEqual({ key: 'status.crashed' });
  expect(status(routing, { ...facts, iconHidden: true }).line).toEqual({ key: 'status.iconHidden' });
});

describe('rows', () => {
  const [, home, side, lab, old] = snapshot('five').seats as [never, ReturnType<typeof snapshot>['seats'][0], ReturnType<typeof snapshot>['seats'][0], ReturnType<typeof snapshot>['seats'][0], ReturnType<typeof snapshot>['seats'][0]];
  const now = snapshot('five').now;

  test('a seat that is full rests without a colour, and says when it is back', () => {
    expect(row(side, now)).toMatchObject({ glyph: null, words: null, idle: true, back_at: now + 8_760 });
  });

  test('paused, draining and needing a person have a word in place of numbers', () => {
    expect(row(lab, now)).toMatchObject({ glyph: 'pause', back: true, words: { key: 'seat.paused' }, button: null });
    expect(row(old, now)).toMatchObject({ glyph: 'warn', words: { key: 'seat.needsPermission' }, button: { act: { do: 'allow' } } });
    expect(row({ ...home, draining: true, inFlight: 2 }, now).words).toEqual({ key: 'seat.finishing', values: { n: 2 } });
    expect(row({ ...home, draining: true, inFlight: 0 }, now).words).toEqual({ key: 'seat.drained' });
  });

  test('old numbers are said to be old', () => {
    const read = now - 31 * 60;
    expect(row({ ...home, readAt: read }, now)).toMatchObject({ idle: true, staleSince: read });
    expect(row({ ...home, readAt: now - 29 * 60 }, now).staleSince).toBeNull();
  });

  test('while questions are throttled the oldest number is told of, though answers bring newer ones', () => {
    const throttled = snapshot('five');
    const [seat] = throttled.seats;
    Object.assign(seat!, { throttledUntil: throttled.now + 600, readAt: throttled.now });
    expect(status(throttled, facts).line).toBe('forecast');
    seat!.windows.at(-1)!.observedAt = throttled.now - 31 * 60;
    expect(oldest(seat!)).toBe(throttled.now - 31 * 60);
    expect(status(throttled, facts).line).toEqual({ key: 'status.throttled' });
  });

  test('GU-03: what was never read is not old, and not empty', () => {
    const unread = { ...home, windows: [], readAt: null };
    expect(row(unread, now)).toMatchObject({ staleSince: null, idle: false });
    expect(tightest(unread)).toBeNull();
    expect(windows(unread).map((window) => window.used)).toEqual([undefined, undefined]);
    expect(windows(unread, ['Fable'])).toHaveLength(3);
  });

  test('a family that a seat was read without is not shown for it', () => {
    expect(windows(side, ['Fable']).map((window) => window.kind)).toEqual(['fiveHour', 'weekly']);
  });

  test('a seat in reserve says what it keeps', () => {
    expect(row({ ...home, reservePercent: 60 }, now)).toMatchObject({ keeps: 60, idle: true });
    expect(row({ ...home, reservePercent: 50 }, now).keeps).toBeNull();
  });
});

test('the others stand worst last, and the lead is not among them', () => {
  const five = snapshot('five');
  expect(lead(five)?.label).toBe('Work');
  expect(others(five.seats, lead(five)?.id ?? null, five.now).map((seat) => seat.label)).toEqual(['Home', 'Side', 'Lab', 'Old laptop']);
  const resting = snapshot('all-resting');
  expect(others(resting.seats, lead(resting)?.id ?? null, resting.now).map((seat) => seat.label)).toEqual(['Home', 'Side', 'Old laptop', 'Lab']);
});

test('the command that logs in names the directory, quoted where it must be', () => {
  const [seat] = snapshot('five').seats;
  const inDir = (dir: string) => loginCommand({ ...seat!, dirs: [dir] });
  expect(loginCommand(null)).toBe('claude');
  expect(inDir('/Users/o/.claude')).toBe('claude');
  expect(inDir('/Users/o/.claude-work')).toBe('CLAUDE_CONFIG_DIR=/Users/o/.claude-work claude');
  expect(inDir("/Users/o/it's $HOME")).toBe(`CLAUDE_CONFIG_DIR='/Users/o/it'\\''s $HOME' claude`);
});

test('addresses are told apart', () => {
  expect(['100.84.12.1:18787', '100.63.0.1:1', '100.128.0.1:1', 'mini.tail1234.ts.net:1', '[fd7a:115c:a1e0::1]:1', null].map(isTailscale)).toEqual([true, false, false, true, true, false]);
  expect(['127.0.0.1:1', 'localhost:1', '[::1]:1', '192.168.0.1:1'].map(isLoopback)).toEqual([true, true, true, false]);
});

test('a choice of who may connect is a choice of addresses, and back', () => {
  const addresses = [
    { kind: 'loopback', ip: '127.0.0.1', interface: 'lo0' },
    { kind: 'tailscale', ip: '100.84.12.1', interface: 'utun4' },
  ] as const;
  expect(hostsOf('tailscale', [...addresses])).toEqual(['127.0.0.1', '100.84.12.1']);
  expect(hostsOf('lan', [...addresses])).toEqual(['127.0.0.1']);
  expect(kindOf(['127.0.0.1', '100.84.12.1'], [...addresses])).toBe('tailscale');
  expect(kindOf(['localhost'], [...addresses])).toBe('loopback');
  expect(kindOf(['0.0.0.0'], [...addresses])).toBeNull();
});
