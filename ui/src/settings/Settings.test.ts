import { fireEvent, render, screen, within } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import { place } from '../lib/place.svelte';
import { said, saidOf, show } from '../testing/shell';
import { facts, snapshot } from '../testing/snapshots';
import Settings from './Settings.svelte';

const settled = () => new Promise((done) => setTimeout(done));
const settings = { host: '127.0.0.1', port: 18_787, routing: 'headroom', holdS: 0, historyDays: 7, tokenRefresh: true, proxy: null, language: 'system' };

async function open(section: string, given: Record<string, unknown> = {}, state: Parameters<typeof snapshot>[0] = 'five') {
  await show(snapshot(state), {}, { settings, launch_at_login: { state: 'off' }, addresses: { candidates: [] }, ...given });
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
  await open('routing', { set: new Error('`price` is not built yet.') });
  await fireEvent.click(screen.getByRole('radio', { name: 'By what would lapse' }));
  await settled();
  expect(screen.getByRole('alert').textContent).toBe('`price` is not built yet.');
  expect((screen.getByRole('radio', { name: 'Most room left' }) as HTMLInputElement).checked).toBe(true);
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
  screen.getAllByRole('button', { name: 'Accounts' })[0]!.click();
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
  screen.getAllByRole('button', { name: 'Accounts' })[1]!.click();
  await tick();
  const group = within(screen.getByRole('group', { name: 'Accounts that This Mac may use' }));
  await fireEvent.click(group.getByRole('checkbox', { name: 'Lab' }));
  expect(saidOf('limitDevice')[0]?.['seats']).toHaveLength(4);
});

test('a notification is one switch of many', async () => {
  await open('notifications');
  await fireEvent.click(screen.getByRole('switch', { name: 'A device was refused' }));
  expect(saidOf('set')).toEqual([{ verb: 'set', key: 'app.notify', value: { ...facts.preferences.notify, refusedDevice: true } }]);
});

test('what was read is listed', async () => {
  await open('privacy');
  expect(document.body.textContent).toContain('Claude Code-credentials');
});

test('a new port is set, then listened on', async () => {
  await open('network');
  await fireEvent.change(screen.getByRole('spinbutton', { name: 'Port' }), { target: { value: '18800' } });
  await settled();
  expect(said).toEqual([{ verb: 'set', key: 'port', value: 18_800 }, { invoke: 'start_router' }]);
});
