import { fireEvent, render, screen } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import { live } from '../lib/live.svelte';
import { said, saidOf, show } from '../testing/shell';
import { snapshot } from '../testing/snapshots';
import Connect from './Connect.svelte';

const KEY = 'rk-0123456789abcdef3fQ9';
const settled = () => new Promise((done) => setTimeout(done));
const link = () => screen.getByTestId('link');

/** As the router words it. */
const connect = ({ key, mode, form }: Record<string, string>) => ({
  block:
    form === 'vscode'
      ? `{"claudeCode.environmentVariables": "${key}"}\n`
      : mode === 'login'
        ? `export ANTHROPIC_CUSTOM_HEADERS='x-router-key: ${key}'\n`
        : `export ANTHROPIC_AUTH_TOKEN=${key}\n`,
});

async function open(state: Parameters<typeof snapshot>[0] = 'five') {
  await show(snapshot(state), {}, {
    addDevice: { id: 'd4', name: 'MacBook Air', key: KEY },
    connect,
    requests: [{ number: 1, at: snapshot('five').now, device: 'MacBook Air', model: 'claude-opus-5-5', seat: 'Work', reason: 'most room', status: 200, wholeMs: 1_900, tokens: null, retries: 0 }],
  });
  render(Connect);
  await settled();
}

async function copy(index = 0) {
  await fireEvent.input(screen.getByRole('textbox'), { target: { value: 'MacBook Air' } });
  screen.getAllByRole('button', { name: 'Copy' })[index]!.click();
  await settled();
}

test('who only looks leaves no key behind', async () => {
  await open();
  expect(new Set(said.map((one) => one.verb))).toEqual(new Set(['connect']));
  expect(link().dataset['state']).toBe('ready');
  expect(screen.getByTestId('block-token').textContent).toContain('ANTHROPIC_AUTH_TOKEN=••••••••');
});

test('copying makes the key once, copies it whole, and shows it only in part', async () => {
  await open();
  await copy(0);
  await copy(0);
  expect(saidOf('addDevice')).toEqual([{ verb: 'addDevice', name: 'MacBook Air' }]);
  const copied = said.filter((one) => one.invoke === 'copy');
  expect(copied[0]).toMatchObject({ concealed: true });
  expect(copied[0]?.['text']).toBe(`export ANTHROPIC_CUSTOM_HEADERS='x-router-key: ${KEY}'\n`);
  expect(document.body.innerHTML).not.toContain(KEY);
  expect(link().dataset['state']).toBe('waiting');
});

test("it turns green when that device's first request arrives, and says what became of it", async () => {
  await open();
  await copy();
  live.show(snapshot('connected'));
  await settled();
  expect(link().dataset['state']).toBe('connected');
  const text = document.body.textContent?.replace(/\s+/g, ' ');
  expect(text).toContain('Its first request arrived at 13:54:00 and was answered.');
  expect(text).toContain('Work');
  expect(text).toContain('Encrypted by Tailscale');
  expect(document.body.innerHTML).not.toContain(KEY);
});

test("another device's request does not turn it green", async () => {
  await open();
  await copy();
  const other = snapshot('five');
  other.devices[0]!.requests += 1;
  live.show(other);
  await settled();
  expect(link().dataset['state']).toBe('waiting');
});

test.each([
  ['key-refused', 'A device used a wrong key'],
  ['address-gone', 'Tailscale is off'],
  ['port-busy', 'The router is not listening'],
  ['paused', 'Routing is paused'],
] as const)('%s is said there', async (state, words) => {
  await open();
  await copy();
  live.show(snapshot(state));
  await settled();
  expect(link().dataset['state']).toBe('trouble');
  expect(link().textContent).toContain(words);
});

test('a key that was turned away before is no trouble of this one', async () => {
  const before = snapshot('key-refused');
  before.activity!.refused!.at = before.now - 600;
  await show(before, {}, { addDevice: { id: 'd4', name: 'x', key: KEY }, connect });

  render(Connect);
  await copy();
  expect(link().dataset['state']).toBe('waiting');
});

test('where only this machine can connect, it says so and leads to the network', async () => {
  const local = snapshot('five');
  local.address = '127.0.0.1:18787';
  await show(local, {}, { connect });
  render(Connect);
  expect(link().textContent).toContain('Only this Mac can connect so far.');
  screen.getByRole('button', { name: 'Network…' }).click();
  expect(said.at(-1)).toEqual({ invoke: 'open_window', name: 'settings', section: 'network' });
});

test('the blocks come in three forms', async () => {
  await open();
  (screen.getByRole('radio', { name: 'VS Code' }) as HTMLInputElement).click();
  await settled();
  expect(screen.getByTestId('block-login').textContent).toContain('claudeCode.environmentVariables');
  (screen.getByRole('radio', { name: 'settings.json' }) as HTMLInputElement).click();
  await settled();
  expect(saidOf('connect').slice(-2).map(({ mode, form }) => [mode, form])).toEqual([['login', 'settings'], ['token', 'settings']]);
});

test('a key can be taken back at once', async () => {
  await open();
  await copy();
  live.show(snapshot('connected'));
  await settled();
  screen.getByRole('button', { name: 'Revoke…' }).click();
  await tick();
  screen.getByRole('button', { name: 'Revoke' }).click();
  await settled();
  expect(saidOf('revokeDevice')).toEqual([{ verb: 'revokeDevice', id: 'd4' }]);
  expect(link().dataset['state']).toBe('ready');
});

test('while Tailscale is off the page does not say that logins stay here: they will travel', async () => {
  await open('address-gone');
  expect(document.body.textContent).toContain('encrypted by Tailscale');
  expect(document.body.textContent).not.toContain('never leaves');
});

test('each form says where it goes', async () => {
  await open();
  const lead = () => document.querySelector('.lead')?.textContent;
  expect(lead()).toContain('terminal');
  (screen.getByRole('radio', { name: 'settings.json' }) as HTMLInputElement).click();
  await settled();
  expect(lead()).toContain('Merge one of these blocks into ~/.claude/settings.json');
  (screen.getByRole('radio', { name: 'VS Code' }) as HTMLInputElement).click();
  await settled();
  expect(lead()).toContain('VS Code’s user settings.json');
});

test('once connected it says how the device signs in, unless both blocks were copied', async () => {
  await open();
  await copy(1);
  live.show(snapshot('connected'));
  await settled();
  expect(document.querySelector('dl')?.textContent?.replace(/\s+/g, ' ')).toContain('Signs in with Device key');
  document.body.innerHTML = '';
  await open();
  await copy(0);
  // The other one: the first says that it was copied.
  await copy(0);
  live.show(snapshot('connected'));
  await settled();
  expect(document.querySelector('dl')?.textContent).not.toContain('Signs in with');
});
