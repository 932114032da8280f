import { expect, test } from 'vitest';

import { cause } from './cause';

test('each failure that the router tells has words of its own', () => {
  for (const [kind, key] of [
    ['not_listening', 'fault.address'],
    ['connect', 'fault.blocked'],
    ['service', 'fault.otherProgram'],
    ['key', 'fault.key'],
    ['seat', 'fault.nobody'],
    ['unreachable', 'fault.network'],
    ['need_login', 'fault.login'],
    ['renewing', 'fault.renewing'],
    ['all_full', 'fault.full'],
    ['paused', 'fault.paused'],
    ['login_refused', 'fault.login'],
    ['trouble', 'fault.anthropic'],
    ['no_answer', 'fault.slow'],
  ] as const) {
    expect(cause({ kind }), kind).toBe(key);
  }
});

test('a failure that is new to the page is said to be one', () => {
  expect(cause({ kind: 'moonlight' })).toBe('fault.other');
  expect(cause({ kind: null })).toBe('fault.other');
});
