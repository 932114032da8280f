import { expect, test } from 'vitest';

import { cause } from './cause';

test('each failure that the router tells has words of its own', () => {
  const upstream = (kind: string) => ({ step: 'upstream', words: `the router could not ask Anthropic: ${kind}` }) as const;
  for (const [step, key] of [
    [{ step: 'listen', words: 'nothing is listened on: the address is not there, or its port is taken' }, 'fault.address'],
    [{ step: 'ping', words: 'connect: nothing answers at 100.64.0.1:18787; is the machine awake?' }, 'fault.blocked'],
    [{ step: 'ping', words: 'service: what answers at http://127.0.0.1:1 is not a Claude Proxy Router' }, 'fault.otherProgram'],
    [{ step: 'ping', words: 'key: the router at http://127.0.0.1:1 does not know this key' }, 'fault.key'],
    [{ step: 'ping', words: 'seat: the key is good, but no seat may serve this device' }, 'fault.nobody'],
    [upstream('unreachable'), 'fault.network'],
    [upstream('need_login'), 'fault.login'],
    [upstream('renewing'), 'fault.renewing'],
    [upstream('all_full'), 'fault.full'],
    [upstream('paused'), 'fault.paused'],
    [{ step: 'upstream', words: 'Anthropic refused the login of Work (401)' }, 'fault.login'],
    [{ step: 'upstream', words: 'Anthropic answers with 529' }, 'fault.anthropic'],
    [{ step: 'upstream', words: 'Anthropic did not answer in time' }, 'fault.slow'],
  ] as const) {
    expect(cause(step), step.words).toBe(key);
  }
});

test('a failure that is new to the page is said to be one', () => {
  expect(cause({ step: 'upstream', words: 'the router could not ask Anthropic: moonlight' })).toBe('fault.other');
  expect(cause({ step: 'ping', words: 'seventh heaven: closed' })).toBe('fault.other');
});
