import { expect, test } from 'vitest';

import { effects, kindOf, lineOf, choices } from './network';

test('a change is asked about where others lose their way here, or others can listen', () => {
  for (const [from, to, others, want] of [
    ['loopback', 'tailscale', 3, []],
    ['loopback', 'lan', 0, ['opens']],
    ['loopback', 'lan', 3, ['opens']],
    ['tailscale', 'lan', 3, ['opens', 'moves']],
    ['tailscale', 'loopback', 3, ['cutsOff']],
    ['tailscale', 'loopback', 0, []],
    ['lan', 'tailscale', 1, ['moves']],
    ['lan', 'lan', 3, []],
    // Written by hand: who comes in by it is not known.
    [null, 'loopback', 2, ['cutsOff']],
  ] as const) {
    expect(effects(from, to, others), `${from} to ${to}, ${others}`).toEqual(want);
  }
});

test('addresses amount to the widest choice among them, and unknown ones to none', () => {
  const here = [{ kind: 'lan', ip: '192.168.0.12', interface: 'en0' }] as const;
  expect(kindOf(['localhost'], [...here])).toBe('loopback');
  expect(kindOf(['127.0.0.1', '192.168.0.12'], [...here])).toBe('lan');
  expect(kindOf(['0.0.0.0'], [...here])).toBeNull();
});

test('only macOS is said to ask', () => {
  const lan = choices.find(({ kind }) => kind === 'lan')!;
  expect(lineOf(lan, 'macos')).toBe('who.lanLine');
  expect(lineOf(lan, 'linux')).toBeNull();
});
