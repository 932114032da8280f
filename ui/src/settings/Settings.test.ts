import { fireEvent, render, screen, within } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import type { Snapshot } from '../lib/bindings/Snapshot';
import { live } from '../lib/live.svelte';
import { place } from '../lib/place.svelte';
import { said, saidOf, show } from '../testing/shell';
import { facts, snapshot } from '../testing/snapshots';
import Settings from './Settings.svelte';

const settled = () => new Promise((done) => setTimeout(done));
const settings = { host: ['127.0.0.1', '100.84.12.1'], port: 18_787, routing: 'headroom', holdS: 0, historyDays: 7, tokenRefresh: true, proxy: null, language: 'system' };

async function open(section: string, given: Record<string, unknown> = {}, state: Parameters<typeof snapshot>[0] | Snapshot = 'five') {
  await show(typeof state === 'string' ? snapshot(state) : state, {}, { settings, launch_at_login: { state: 'off' }, addresses: { candidates: [] }, ...given });
  place.go(section);
  render(Settings);
  await settled();
  said.length = 0;
}

test('the language changes at once', async () => {
  await open('general');
  await fireEvent.change(screen.getByRole('combobox', { name: 'Language' }), { target: { value: 'ko' } });
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'language', value: 'ko' }]);
});

test('open at login shows what the system says, not what was wished', async () => {
  await open('general', { launch_at_login: { state: 'needsApproval' } });
  const item = screen.getByRole('switch', { name: 'Open when I log in to this Mac' }) as HTMLInputElement;
  expect(item.checked).toBe(false);
  screen.getByRole('button', { name: 'Open Login Items' }).click();
  expect(said).toEqual([{ invoke: 'open_link', link: 'loginItems' }]);
  await fireEvent.click(item);
  await settled();
  expect(said.at(-1)).toEqual({ invoke: 'launch_at_login', enabled: true });
});

test('a refused setting goes back to what it was, and says why', async () => {
  await open('routing', { set: new Error('The settings could not be written.') });
  await fireEvent.click(screen.getByRole('radio', { name: 'Keep the week in balance' }));
  await settled();
  expect(screen.getByRole('alert').textContent).toBe('The settings could not be written.');
  expect((screen.getByRole('radio', { name: 'Most room left' }) as HTMLInputElement).checked).toBe(true);
});

test('the way that is taken where nobody chose comes first and is marked', async () => {
  await open('routing');
  const [first] = screen.getAllByRole('radio');
  expect((first as HTMLInputElement).value).toBe('price');
  expect(first?.parentElement?.textContent).toContain('Default');
});

test('who renews logins is a choice of three, each with what it means', async () => {
  await open('accounts');
  expect(document.body.textContent).toContain('an account stops until you open Claude Code with it');
  await fireEvent.click(screen.getByRole('radio', { name: 'Nobody' }));
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'tokenRefresh', value: false }]);
});

test('the command for a login of the app’s own names a directory of the app’s', async () => {
  await open('accounts');
  screen.getByTitle('Copy the command for a login of this app alone').click();
  expect(said).toEqual([
    {
      invoke: 'copy',
      text: 'CLAUDE_CONFIG_DIR="$HOME/Library/Application Support/claude-proxy-router/logins/work" claude',
      concealed: false,
    },
  ]);
});

test('accounts move and pause', async () => {
  await open('accounts');
  screen.getByRole('button', { name: 'Move Home up' }).click();
  await fireEvent.click(screen.getByRole('switch', { name: 'Use Work' }));
  expect(saidOf('order')[0]?.['seats']).toEqual(['acc-1/org-1', 'acc-0/org-0', 'acc-2/org-2', 'acc-3/org-3', 'acc-4/org-4']);
  expect(saidOf('pause')).toEqual([{ verb: 'pause', seat: 'acc-0/org-0' }]);
});

test('a device is renamed, limited, and revoked after a second look', async () => {
  await open('devices', {}, 'connected');
  await fireEvent.change(screen.getByRole('textbox', { name: 'Name of dev-box' }), { target: { value: 'build box' } });
  screen.getAllByRole('button', { name: 'Accounts…' })[0]!.click();
  await tick();
  const only = within(screen.getByRole('group', { name: 'Accounts that MacBook Pro may use' }));
  await fireEvent.click(only.getByRole('checkbox', { name: 'Home' }));
  screen.getByRole('button', { name: 'Revoke… dev-box' }).click();
  await tick();
  expect(saidOf('revokeDevice')).toEqual([]);
  screen.getByRole('button', { name: 'Revoke' }).click();
  expect(said).toEqual([
    { verb: 'renameDevice', id: 'd3', name: 'build box' },
    { verb: 'limitDevice', id: 'd1', seats: ['acc-0/org-0', 'acc-1/org-1'] },
    { verb: 'revokeDevice', id: 'd3' },
  ]);
});

test('all accounts is no limit', async () => {
  await open('devices', {}, 'connected');
  screen.getAllByRole('button', { name: 'Accounts…' })[1]!.click();
  await tick();
  const group = within(screen.getByRole('group', { name: 'Accounts that This Mac may use' }));
  await fireEvent.click(group.getByRole('checkbox', { name: 'Lab' }));
  expect(saidOf('limitDevice')[0]?.['seats']).toHaveLength(4);
});

test('what a device may use is said by name, and how many requests since when', async () => {
  const one = snapshot('five');
  one.devices[0]!.seats = ['acc-0/org-0', 'acc-1/org-1'];
  await open('devices', {}, one);
  const line = screen.getByRole('textbox', { name: 'Name of MacBook Pro' }).parentElement?.textContent;
  expect(line).toMatch(/Last used .* · 2.112 requests since Nov 2\d · only Work, Home$/);
});

test('the key that came with the settings cannot be revoked here', async () => {
  const one = snapshot('five');
  Object.assign(one.devices[1]!, { id: 'first', createdAt: null });
  await open('devices', {}, one);
  expect(screen.queryByRole('button', { name: 'Revoke… This Mac' })).toBeNull();
  expect(screen.getByRole('button', { name: 'Revoke… dev-box' })).toBeTruthy();
});

test('a notification is one switch of many', async () => {
  await open('notifications');
  await fireEvent.click(screen.getByRole('switch', { name: 'A device was refused' }));
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'app.notify', value: { ...facts.preferences.notify, refusedDevice: true } }]);
});

test('what was read is listed with whose it is, when and what for', async () => {
  const one = snapshot('five');
  one.reads = [
    { what: 'Keychain item Claude Code-credentials', seat: 'Work', when: one.now - 4 * 3_600, why: 'renewal' },
    { what: 'Keychain item Claude Code-credentials-0a1b2c3d', seat: 'Lab', when: one.now - 26 * 3_600, why: 'first' },
    { what: 'Keychain item Claude Code-credentials-4e5f6071', seat: null, when: one.now - 26 * 3_600, why: 'first' },
    { what: '/Users/owner/.claude-1/.credentials.json', seat: 'Home', when: one.now, why: 'changed' },
  ];
  await open('privacy', {}, one);
  const rows = within(screen.getByRole('region', { name: 'What we read' }));
  const said = (text: string | RegExp) => rows.getByText(text).closest('div')?.textContent?.replace(/\s+/g, ' ').trim();
  expect(said('Work')).toMatch(/Keychain item “Claude Code-credentials” · To renew it Today \d\d:54$/);
  expect(said('Lab')).toMatch(/Keychain item “Claude Code-credentials-0a1b2c3d” · It was new [A-Z]/);
  expect(said(/4e5f6071/)).toMatch(/^Keychain item “Claude Code-credentials-4e5f6071” It was new [A-Z]/);
  expect(said('Home')).toContain('/Users/owner/.claude-1/.credentials.json · It had changed');
});

const candidates = [
  { kind: 'loopback', ip: '127.0.0.1', interface: 'lo0' },
  { kind: 'tailscale', ip: '100.84.12.1', interface: 'utun4' },
  { kind: 'lan', ip: '192.168.0.12', interface: 'en0' },
];
const network = (given: Record<string, unknown> = {}, state: Parameters<typeof open>[2] = 'five') =>
  open('network', { addresses: { candidates }, ...given }, state);
const radio = (name: string) => screen.getByRole('radio', { name }) as HTMLInputElement;
/** A snapshot without another device. */
const alone = () => ({ ...snapshot('five'), devices: [] });

test.each([
  ['Only this Mac', '3 other devices have a key and will lose this router.'],
  ['This local network', 'What devices send will cross this network unencrypted. 3 other devices have a key and will need the new address.'],
])('%s is asked about first, by what it does', async (name, words) => {
  await network();
  radio(name).focus();
  await fireEvent.click(radio(name));
  await settled();
  expect(screen.getByRole('alert').textContent).toBe(words);
  expect(said).toEqual([]);
  const keep = screen.getByRole('button', { name: 'Keep' });
  keep.focus();
  keep.click();
  await tick();
  expect(document.activeElement).toBe(radio(name));
  expect(radio('My Tailscale devices').checked).toBe(true);
  expect(screen.queryByRole('alert')).toBeNull();
  expect(said).toEqual([]);
});

test('once it is confirmed, the router listens elsewhere', async () => {
  await network();
  await fireEvent.click(radio('This local network'));
  screen.getByRole('button', { name: 'Change' }).click();
  await settled();
  expect(said).toEqual([{ verb: 'set', key: 'host', value: ['127.0.0.1', '192.168.0.12'] }, { invoke: 'start_router' }]);
  expect(screen.queryByRole('alert')).toBeNull();
});

test('what nobody would notice is done at once', async () => {
  await network({ settings: { ...settings, host: '127.0.0.1' } });
  await fireEvent.click(radio('My Tailscale devices'));
  await settled();
  expect(said).toEqual([{ verb: 'set', key: 'host', value: ['127.0.0.1', '100.84.12.1'] }, { invoke: 'start_router' }]);
});

test('a new port is asked about where devices would have to know, and listened on at once where none do', async () => {
  await network();
  const port = () => screen.getByRole('spinbutton', { name: 'Port' }) as HTMLInputElement;
  await fireEvent.change(port(), { target: { value: '18800' } });
  await settled();
  expect(screen.getByRole('alert').textContent).toBe('3 other devices have a key and will need the new address.');
  screen.getByRole('button', { name: 'Keep' }).click();
  await tick();
  expect(port().value).toBe('18787');
  expect(said).toEqual([]);
  live.show(alone());
  await tick();
  await fireEvent.change(port(), { target: { value: '18800' } });
  await settled();
  expect(said).toEqual([{ verb: 'set', key: 'port', value: 18_800 }, { invoke: 'start_router' }]);
});

test('what is no port is said next to the field, and not sent', async () => {
  await network({}, alone());
  const port = screen.getByRole('spinbutton', { name: 'Port' });
  for (const value of ['', '80', '70000']) {
    await fireEvent.change(port, { target: { value } });
    expect(screen.getByRole('alert').textContent, value).toBe('A port is a number from 1024 to 65535.');
    expect(document.getElementById(port.getAttribute('aria-describedby') ?? '')?.textContent).toMatch(/^A port/);
  }
  expect(said).toEqual([]);
});

test('a setting that keeps the router from starting is named in words beside the addresses', async () => {
  const words = '`limitPct` must be a number from 1 to 100';
  const router = { state: 'failed', code: 'settingsRefused', words } as const;
  await show({ ...snapshot('five'), listening: [] }, { router }, { settings, addresses: { candidates: [] } });
  place.go('network');
  render(Settings);
  await settled();
  expect(screen.getByText('A setting was not applied: the limit must be 1–100%.')).toBeTruthy();
});

test('once the router runs, what could not be had before is asked for anew', async () => {
  let runs = false;
  const given = () => {
    if (!runs) throw { code: 'notRunning', message: 'the router does not run' };
    return settings;
  };
  await show({ ...snapshot('five'), listening: [] }, { router: { state: 'starting' } }, { settings: given, addresses: { candidates: [] } });
  place.go('network');
  render(Settings);
  await settled();
  expect(screen.getByRole('alert').textContent).toBe('the router does not run');
  runs = true;
  await live.know({ ...live.facts!, router: { state: 'running' } });
  await settled();
  expect(screen.queryByRole('alert')).toBeNull();
  expect((screen.getByRole('spinbutton', { name: 'Port' }) as HTMLInputElement).value).toBe('18787');
});

test('the way to Anthropic is tested here, at once where the icon’s menu asks for it', async () => {
  const test = [{ step: 'listen', ok: false, words: 'nobody', kind: 'not_listening', ms: 0 }];
  await open('network/test', { test });
  await settled();
  expect(screen.getByText('The router is not listening')).toBeTruthy();
  await fireEvent.click(screen.getByRole('button', { name: 'Test' }));
  await settled();
  expect(saidOf('test').length).toBe(1); // the first was said before the page was cleared
});

test('a proxy that is refused is said next to the field, which keeps what was typed', async () => {
  const set = ({ value }: { value: string | null }) => {
    if (value?.includes('@')) throw { code: 'badValue', message: '`proxy` must not hold a password' };
    return null;
  };
  await network({ set });
  const proxy = screen.getByRole('textbox', { name: 'Proxy to Anthropic' }) as HTMLInputElement;
  await fireEvent.change(proxy, { target: { value: 'http://me:secret@proxy:3128' } });
  await settled();
  expect(screen.getByRole('alert').textContent).toMatch(/^Not accepted\..* without a name or password\.$/);
  expect(proxy.value).toBe('http://me:secret@proxy:3128');
  expect(proxy.getAttribute('aria-invalid')).toBe('true');
  await fireEvent.change(proxy, { target: { value: ' socks5://proxy:1080 ' } });
  await settled();
  expect(said.at(-1)).toEqual({ verb: 'set', key: 'proxy', value: 'socks5://proxy:1080' });
  expect(screen.queryByRole('alert')).toBeNull();
});
