// Every screen in every state, as a list: what is photographed, and what is looked at for barriers.
import { answers, snapshots } from './shell.mjs';

const states = ['first-load', 'none', 'one', 'three', 'five', 'six', 'rows', 'all-resting', 'all-paused', 'paused', 'draining', 'needs-login', 'needs-permission', 'throttled', 'offline', 'port-busy', 'address-gone', 'settings-refused', 'korean-long-names'];

const copyBlock = async (page) => {
  await page.getByRole('textbox').fill('MacBook Air');
  await page.locator('button.labelled').first().click();
  await page.waitForTimeout(50);
};

const portBusy = { router: { state: 'failed', code: 'portBusy', words: 'port 18787 is used by node', port: 18_787, holder: 'node' } };

/** Five accounts of which two were read: one from the Keychain, one from its file. */
const read = {
  ...snapshots.five,
  reads: [
    { what: '/Users/owner/.claude-1/.credentials.json', seat: snapshots.five.seats[1].label, when: snapshots.five.now - 74_000, why: 'first' },
    { what: 'Keychain item Claude Code-credentials', seat: snapshots.five.seats[0].label, when: snapshots.five.now - 14_400, why: 'renewal' },
  ],
};

/** Each: a name, how to open it, what to do then. */
export const shots = [
  ...states.map((snapshot) => ({ name: `panel-${snapshot}`, page: 'panel', snapshot, ...(snapshot === 'port-busy' ? { facts: portBusy } : {}) })),
  { name: 'panel-expanded', page: 'panel', then: async (page) => page.locator('[data-seat="acc-1/org-1"] button.name').click() },
  { name: 'panel-left-clock', page: 'panel', preferences: { percent: 'left', resets: 'clock' } },
  { name: 'panel-crashed', page: 'panel', snapshot: 'three', facts: { crash: { at: 1_796_133_000 } } },
  { name: 'panel-icon-hidden', page: 'panel', snapshot: 'three', facts: { iconHidden: true } },
  { name: 'panel-held-by-service', page: 'panel', snapshot: 'none', facts: { router: { state: 'heldByService', pid: 4_711 } } },
  { name: 'panel-held-asked', page: 'panel', snapshot: 'none', facts: { router: { state: 'heldByService', pid: 4_711 } }, then: async (page) => page.locator('header .buttons button').click() },
  { name: 'panel-address-gone-asked', page: 'panel', snapshot: 'address-gone', then: async (page) => page.locator('header .buttons button').last().click() },
  { name: 'panel-menu', page: 'panel', keeps: true, then: async (page) => page.locator('button[aria-haspopup]').click() },
  { name: 'panel-starting', page: 'panel', snapshot: 'none', facts: { router: { state: 'starting' } } },
  { name: 'panel-quitting', page: 'panel', facts: { quitting: true } },
  { name: 'panel-names-hidden', page: 'panel', snapshot: 'unnamed', preferences: { hideNames: true } },
  { name: 'account-detail', page: 'panel', hash: `seat/${encodeURIComponent('acc-0/org-0')}`, size: { width: 360, height: 700 } },
  { name: 'account-detail-resting', page: 'panel', hash: `seat/${encodeURIComponent('acc-2/org-2')}`, size: { width: 360, height: 700 } },
  { name: 'account-detail-paused', page: 'panel', hash: `seat/${encodeURIComponent('acc-3/org-3')}`, size: { width: 360, height: 700 } },
  { name: 'account-detail-draining', page: 'panel', snapshot: 'draining', hash: `seat/${encodeURIComponent('acc-1/org-1')}`, size: { width: 360, height: 700 } },
  { name: 'account-detail-rename', page: 'panel', hash: `seat/${encodeURIComponent('acc-0/org-0')}`, size: { width: 360, height: 700 }, keeps: true, then: async (page) => page.locator('.head .glyph').click() },
  { name: 'activity-panel-empty', page: 'panel', hash: 'activity', size: { width: 360, height: 700 }, answers: { requests: [], switches: [] } },
  { name: 'activity-panel', page: 'panel', hash: 'activity', size: { width: 360, height: 700 } },
  { name: 'activity', page: 'activity' },
  { name: 'connect', page: 'connect' },
  { name: 'connect-waiting', page: 'connect', then: async (page) => {
      await page.getByRole('textbox').fill('MacBook Air');
      await page.locator('button.labelled').first().click();
      await page.waitForTimeout(50);
    } },
  { name: 'connect-done', page: 'connect', follow: 'connected' },
  { name: 'connect-refused', page: 'connect', follow: 'key-refused' },
  { name: 'connect-tailscale-off', page: 'connect', follow: 'address-gone' },
  { name: 'connect-revoke', page: 'connect', follow: 'connected', after: async (page) => page.locator('dd.key button').click() },
  { name: 'connect-settings', page: 'connect', then: async (page) => page.getByText('settings.json', { exact: true }).first().click() },
  { name: 'connect-vscode', page: 'connect', then: async (page) => page.getByText('VS Code').click() },
  { name: 'onboarding-1', page: 'onboarding', facts: { firstRun: true } },
  ...[2, 3, 4, 5].map((step) => ({ name: `onboarding-${step}`, page: 'onboarding', facts: { firstRun: true }, step })),
  { name: 'onboarding-2-none', page: 'onboarding', snapshot: 'none', facts: { firstRun: true }, step: 2 },
  { name: 'onboarding-3-advanced', page: 'onboarding', facts: { firstRun: true }, step: 3, then: async (page) => page.locator('summary').click() },
  { name: 'onboarding-3-busy', page: 'onboarding', snapshot: 'port-busy', facts: { firstRun: true, ...portBusy }, step: 3 },
  { name: 'onboarding-3-no-tailscale', page: 'onboarding', facts: { firstRun: true }, step: 3, answers: {
      settings: { ...answers.settings, host: '127.0.0.1' },
      addresses: { ...answers.addresses, candidates: answers.addresses.candidates.filter(({ kind }) => kind !== 'tailscale') },
    } },
  { name: 'onboarding-4-checking', page: 'onboarding', facts: { firstRun: true }, step: 4, answers: { test: 'never' } },
  { name: 'onboarding-4-failed', page: 'onboarding', facts: { firstRun: true }, step: 4, answers: { test: [
      { step: 'listen', ok: true, words: '', kind: null, ms: 2 },
      { step: 'ping', ok: true, words: '', kind: null, ms: 4 },
      { step: 'upstream', ok: false, words: 'the router could not ask Anthropic: unreachable', kind: 'unreachable', ms: 12 },
    ] } },
  { name: 'onboarding-5-waiting', page: 'onboarding', facts: { firstRun: true }, step: 5, then: copyBlock },
  { name: 'onboarding-5-token', page: 'onboarding', facts: { firstRun: true }, step: 5, then: async (page) => page.getByText('It has no login').or(page.getByText('로그인이 없어요')).click() },
  { name: 'onboarding-5-connected', page: 'onboarding', facts: { firstRun: true }, step: 5, follow: 'connected' },
  ...['general', 'accounts', 'routing', 'devices', 'network', 'notifications', 'privacy', 'about'].map((section) => ({
    name: `settings-${section}`, page: 'settings', hash: section,
    snapshot: section === 'devices' ? 'connected' : section === 'privacy' ? read : 'five',
  })),
  { name: 'settings-accounts-logins', page: 'settings', hash: 'accounts', then: (page) => page.locator('main code').scrollIntoViewIfNeeded() },
  { name: 'settings-devices-accounts', page: 'settings', hash: 'devices', snapshot: 'connected', then: (page) => page.getByRole('button', { name: /^(Accounts|계정)…/ }).first().click() },
  { name: 'settings-devices-revoke', page: 'settings', hash: 'devices', snapshot: 'connected', then: (page) => page.getByRole('button', { name: /dev-box$/ }).click() },
  ...['loopback', 'lan'].map((kind) => ({
    name: `settings-network-to-${kind}`, page: 'settings', hash: 'network', then: (page) => page.locator(`input[value=${kind}]`).click(),
  })),
  { name: 'settings-network-refused', page: 'settings', hash: 'network', then: async (page) => {
      await page.evaluate(() => (globalThis.__shell.refusals.set = { code: 'badValue', message: '`proxy` is not accepted' }));
      await page.getByRole('textbox').fill('proxy.example.test');
      await page.getByRole('textbox').press('Tab');
    } },
];

/** Brings an opened page into the state of its shot. */
export async function pose(page, shot, snapshots) {
  if (shot.then) await shot.then(page);
  if (shot.follow) {
    await page.getByRole('textbox').fill('MacBook Air');
    await page.locator('button.labelled').first().click();
    await page.waitForTimeout(50);
    await page.evaluate((snapshot) => globalThis.__shell.emit('snapshot', snapshot), snapshots[shot.follow]);
    await page.waitForTimeout(80);
  }
  if (shot.after) await shot.after(page);
  // What is about the focus keeps it.
  if (!shot.keeps) await page.evaluate(() => document.activeElement?.blur());
  await page.waitForTimeout(40);
}

/** How a shot is opened. */
export const opening = (shot, rest) => ({
  ...shot,
  ...rest,
  ...(shot.step ? { before: `localStorage.setItem('step', '${shot.step}')` } : {}),
});
