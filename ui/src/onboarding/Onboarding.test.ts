import { fireEvent, render, screen } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import { live } from '../lib/live.svelte';
import { said, saidOf, show } from '../testing/shell';
import { snapshot, type State } from '../testing/snapshots';
import Onboarding from './Onboarding.svelte';

const settled = () => new Promise((done) => setTimeout(done));
const step = () => document.querySelector<HTMLElement>('[data-step]')?.dataset['step'];
const go = async () => {
  screen.getByRole('button', { name: /^(Continue|Finish)$/ }).click();
  await settled();
};

const world = {
  settings: { host: '127.0.0.1', port: 18_787 },
  addresses: {
    candidates: [
      { kind: 'loopback', ip: '127.0.0.1', interface: 'lo0' },
      { kind: 'tailscale', ip: '100.84.12.1', interface: 'utun4' },
    ],
  },
  connect: { block: 'export ANTHROPIC_AUTH_TOKEN=x' },
  test: [
    { step: 'listen', ok: true, words: '', kind: null, ms: 0 },
    { step: 'ping', ok: true, words: '', kind: null, ms: 4 },
    { step: 'ping', ok: true, words: '', kind: null, ms: 5 },
    { step: 'upstream', ok: true, words: '', kind: null, ms: 212 },
  ],
  launch_at_login: { state: 'off' },
};

async function open(state: State = 'five', at = 1, given: Record<string, unknown> = {}) {
  await show(snapshot(state), { firstRun: true }, { ...world, ...given });
  localStorage.setItem('step', String(at));
  render(Onboarding);
  await settled();
}

test('the terms come first, once', async () => {
  await open();
  const next = screen.getByRole('button', { name: 'Continue' });
  expect(next).toHaveProperty('disabled', true);
  screen.getByRole('checkbox', { name: 'These are my own accounts' }).click();
  await tick();
  expect(next).toHaveProperty('disabled', false);
  await go();
  expect(step()).toBe('2');
});

test('first launch to routed, by clicks alone', async () => {
  await open();
  screen.getByRole('checkbox').click();
  await tick();
  await go();
  expect(step()).toBe('2');
  await go();
  expect(step()).toBe('3');
  await go();
  expect(step()).toBe('4');
  expect(screen.getByRole('heading', { level: 1 }).textContent).toBe('It works');
  await go();
  expect(step()).toBe('5');
  await go();
  expect(said.at(-1)).toEqual({ invoke: 'finish_onboarding' });
  // What is recommended was taken.
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'host', value: ['127.0.0.1', '100.84.12.1'] }]);
});

test('each account has a switch, and a failure is said', async () => {
  await open('five', 2);
  const lab = screen.getByRole('switch', { name: 'Use Lab' }) as HTMLInputElement;
  expect(lab.checked).toBe(false);
  await fireEvent.click(lab);
  await fireEvent.click(screen.getByRole('switch', { name: 'Use Home' }));
  expect(said.filter((one) => one.verb)).toEqual([
    { verb: 'resume', seat: 'acc-3/org-3' },
    { verb: 'pause', seat: 'acc-1/org-1' },
  ]);
});

test('a login that macOS asks about first has a button and no switch, and what is switched off is off', async () => {
  await open('five', 2);
  const [lab, old] = ['Lab', 'Old laptop'].map((name) => screen.getByText(name).closest('li'));
  expect(lab?.textContent).toContain('Off');
  expect(old?.textContent).toContain('macOS will ask first');
  expect(screen.getByRole('button', { name: 'Allow…, Old laptop' })).toBeTruthy();
  expect(screen.queryByRole('switch', { name: 'Use Old laptop' })).toBeNull();
});

test('what macOS may ask is shown before it asks, as a picture', async () => {
  await open('one', 2);
  expect(screen.getByText('A picture of what macOS may ask')).toBeTruthy();
  expect(screen.queryByRole('button', { name: 'Allow' })).toBeNull();
});

test('ON-02: with no login found, it says what to do, and runs nothing', async () => {
  await open('none', 2);
  expect(document.body.textContent).toContain('No Claude login found yet.');
  expect(said).toEqual([]);
  screen.getByRole('button', { name: 'Copy claude command' }).click();
  expect(said).toEqual([{ invoke: 'copy', text: 'claude' }]);
  expect(screen.getByRole('button', { name: 'Continue anyway' }).classList.contains('default')).toBe(false);
});

test('who chose this Mac alone finds it chosen on the way back', async () => {
  await open('five', 3);
  await fireEvent.click(screen.getByRole('radio', { name: /Only this Mac/ }));
  await go();
  await go();
  expect(step()).toBe('5');
  for (const back of ['4', '3']) {
    screen.getByRole('button', { name: 'Back' }).click();
    await settled();
    expect(step()).toBe(back);
  }
  expect((screen.getByRole('radio', { name: /Only this Mac/ }) as HTMLInputElement).checked).toBe(true);
  expect(saidOf('set')).toEqual([]);
});

test('it opens at login unless its owner unticks that, and is not ticked twice', async () => {
  let state = 'off';
  const launch_at_login = ({ enabled }: { enabled?: boolean }) => ({ state: (state = enabled === undefined ? state : enabled ? 'on' : 'off') });
  await open('five', 5, { launch_at_login });
  await settled();
  const box = screen.getByRole('checkbox', { name: /^Open when/ }) as HTMLInputElement;
  expect(box.checked).toBe(true);
  await fireEvent.click(box);
  await settled();
  dispatchEvent(new Event('focus'));
  await settled();
  expect([state, box.checked]).toEqual(['off', false]);
});

test('a network that is not there cannot be chosen', async () => {
  await open('five', 3);
  expect(screen.getByRole('radio', { name: /This local network/ })).toHaveProperty('disabled', true);
  expect((screen.getByRole('radio', { name: /My Tailscale devices/ }) as HTMLInputElement).checked).toBe(true);
});

test('a network without encryption looks like one, and macOS is named where it asks', async () => {
  const lan = { kind: 'lan', ip: '192.168.0.12', interface: 'en0' };
  await open('five', 3, { addresses: { candidates: [...world.addresses.candidates, lan] } });
  const row = screen.getByRole('radio', { name: /This local network/ }).closest('label');
  expect(row?.textContent).toMatch(/Not encrypted\.\s+macOS may ask/);
  expect(row?.querySelector('svg')).not.toBeNull();
});

test('a port that the router has is free; one that another program has is solved on the spot', async () => {
  await open('five', 3);
  expect(document.body.textContent).toContain('Port 18787 is free');
  await live.know({ ...live.facts!, router: { state: 'failed', code: 'portBusy', words: '', port: 18_787, holder: 'node' } });
  await tick();
  expect(document.querySelector('details')?.open).toBe(true);
  expect(document.body.textContent).toContain('Port 18787 is used by “node”');
  screen.getByRole('button', { name: 'Use 18788' }).click();
  await go();
  expect(saidOf('set').at(-1)).toEqual({ verb: 'set', key: 'port', value: 18_788 });
});

test('the device key that Anthropic sees is named, and so is a way without encryption', async () => {
  await open('five', 5);
  expect(document.body.textContent).toContain('Anthropic sees the device key once per start.');
  const own = screen.getByRole('radio', { name: /It has its own Claude login/ }).closest('label');
  expect(own?.textContent).not.toContain('Not encrypted.');
  live.show({ ...snapshot('five'), address: '192.168.0.12:18787' });
  await tick();
  expect(own?.textContent).toContain('Not encrypted.');
});

test('a device without a name is called what the empty field says', async () => {
  await open('five', 5, { addDevice: { id: 'd9', name: 'New device', key: 'rk-0' } });
  expect(screen.getByRole('textbox').getAttribute('placeholder')).toBe('New device');
  screen.getByRole('button', { name: 'Copy' }).click();
  await settled();
  expect(saidOf('addDevice')).toEqual([{ verb: 'addDevice', name: 'New device' }]);
});

test('a choice that is refused keeps the step and says why', async () => {
  await open('five', 3, { set: new Error('The address is not there.') });
  await go();
  expect(step()).toBe('3');
  expect(screen.getByRole('alert').textContent).toBe('The address is not there.');
});

const failing = { test: [...world.test.slice(0, 3), { step: 'upstream', ok: false, words: 'the router could not ask Anthropic: unreachable', kind: 'unreachable', ms: 12 }] };

test('a failed test names its step and the cause in words, keeps the router’s own apart, and can be run again', async () => {
  await open('five', 4, failing);
  expect(screen.getByRole('heading', { level: 1 }).textContent).toBe('Not yet');
  expect(document.body.textContent).toContain('Anthropic did not answer');
  expect(document.body.textContent).toContain('There is no network, or a firewall or proxy blocks Anthropic.');
  expect(document.querySelector('details')?.textContent).toContain('could not ask Anthropic: unreachable');
  screen.getByRole('button', { name: 'Check again' }).click();
  await settled();
  expect(saidOf('test')).toHaveLength(2);
});

test('after a failure the way on is to check again, and going on is a choice', async () => {
  await open('five', 4, failing);
  const isDefault = (name: string) => screen.getByRole('button', { name }).classList.contains('default');
  expect([isDefault('Check again'), isDefault('Continue anyway')]).toEqual([true, false]);
  expect(document.querySelector('footer .failed')).not.toBeNull();
  screen.getByRole('button', { name: 'Continue anyway' }).click();
  await settled();
  expect(step()).toBe('5');
  expect(isDefault('Finish')).toBe(true);
});

test('each step that went well says how long it took', async () => {
  await open('five', 4);
  const lines = screen.getAllByRole('listitem').map((line) => line.textContent?.replaceAll('\u202f', ' '));
  expect(lines.map((line) => line?.match(/[<\d ]+ms$/)?.[0].trim())).toEqual(['< 1 ms', '4 ms', '212 ms']);
});

test('a router that does not answer is one that does not listen', async () => {
  await open('five', 4, { test: new Error('the router does not run') });
  expect(document.body.textContent).toContain('The router is not listening');
  expect(document.querySelector('details')?.textContent).toContain('the router does not run');
});

test('who closed it comes back to the same step', async () => {
  await open('five', 3);
  expect(step()).toBe('3');
  screen.getByRole('button', { name: 'Back' }).click();
  await settled();
  expect(localStorage.getItem('step')).toBe('2');
});
