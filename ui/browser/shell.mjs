// A shell for the built pages: serves them, stands in for Tauri with recorded snapshots, and opens a Chromium.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

const here = fileURLToPath(new URL('.', import.meta.url));
const dist = join(here, '../dist');
const recorded = join(here, '../../crates/gateway/tests/snapshots');

/** The snapshots by name. */
export const snapshots = Object.fromEntries(
  readdirSync(recorded).map((file) => [file.replace('.json', ''), JSON.parse(readFileSync(join(recorded, file), 'utf8'))]),
);

/** What the shell knows, on a Mac that has been set up. */
export const facts = {
  platform: 'macos',
  version: '0.1.0',
  language: 'en',
  firstRun: false,
  router: { state: 'running' },
  crash: null,
  iconHidden: false,
  update: null,
  quitting: false,
  preferences: {
    onboarded: true,
    menuBar: 'percent',
    percent: 'used',
    resets: 'left',
    hideNames: false,
    keepAwake: false,
    checkUpdates: false,
    notify: { allResting: true, attention: true, runsDry: false, back: false, newDevice: false, refusedDevice: false },
  },
  sandbox: false,
};

const NOW = snapshots.five.now;
const MINUTE = 60;
const LABELS = snapshots.five.seats.map((seat) => seat.label);
const DEVICES = Object.fromEntries(snapshots.five.devices.map((device) => [device.id, device.name]));
const WORDS = { sameConversation: 'same conversation', spare: 'room to spare this week', instead: 'took over', onlyOne: 'only seat' };

/** The day's requests, as the log tells them; times are the snapshots'. */
const requests = [
  ['d1', 'claude-opus-5-5', 0, 'sameConversation', 200, 48_200, 1_100, 2_140, 0, 12],
  ['d2', 'claude-sonnet-5', 0, 'spare', 200, 12_600, 400, 980, 0, 29],
  ['d1', 'claude-opus-5-5', 0, 'instead', 200, 47_900, 2_300, 3_415, 1, 63],
  ['d1', 'claude-opus-5-5', 2, 'sameConversation', 429, null, null, 212, 0, 65],
  ['d3', 'claude-haiku-5', 1, 'spare', 200, 3_100, 200, 640, 0, 170],
  ['d1', 'claude-fable-5', 0, 'onlyOne', 200, 61_000, 3_800, 5_120, 0, 238],
  ['d2', 'claude-sonnet-5', 2, 'sameConversation', 200, 22_400, 900, 1_760, 0, 321],
  ['d3', 'claude-haiku-5', 1, 'sameConversation', 200, 3_400, 100, 702, 0, 408],
  // The rest of the day, seat by seat: from so many minutes ago to so many.
  ...[[2, 174, 8], [0, 600, 480], [1, 114, 92], [1, 320, 178], [4, 334, 323], [2, 1_038, 990], [1, 1_237, 1_042], [0, 1_430, 1_241]].flatMap(([order, from, to]) =>
    Array.from({ length: Math.ceil((from - to) / 2) }, (_, index) => [
      ['d1', 'd1', 'd1', 'd2', 'd3'][index % 5], 'claude-opus-5-5', order, 'sameConversation', 200, 40_000 + index * 100, 900, 2_000 + index, 0, (to + index * 2) * MINUTE,
    ]),
  ),
].sort((one, other) => one.at(-1) - other.at(-1)).map(([device, model, order, why, status, tokensIn, tokensOut, ms, retries, ago], index) => ({
  number: 1_000 - index,
  at: NOW - ago,
  device: DEVICES[device],
  path: '/v1/messages',
  model,
  seat: LABELS[order],
  status,
  reason: WORDS[why],
  tokens: tokensIn === null ? null : { input: 1_200, output: tokensOut, cacheRead: tokensIn - 1_200, cacheWrite: 0 },
  headMs: ms / 2,
  wholeMs: ms,
  end: 'whole',
  retries,
  attempts: retries === 0 ? [] : [{ seat: LABELS[2], reason: WORDS.sameConversation, status: 429, cameOfIt: '5-hour limit reached' }],
}));

const switches = [
  { at: NOW - 2 * MINUTE, from: LABELS[2], to: LABELS[0], cause: 'limit', words: '5-hour limit reached' },
  { at: NOW - 176 * MINUTE, from: LABELS[1], to: LABELS[2], cause: 'unreachable', words: '' },
  { at: NOW - 322 * MINUTE, from: LABELS[4], to: LABELS[1], cause: 'token', words: '' },
  { at: NOW - 1_040 * MINUTE, from: LABELS[1], to: LABELS[2], cause: 'manual', words: '' },
  { at: NOW - 1_239 * MINUTE, from: LABELS[0], to: LABELS[1], cause: 'limit', words: '5-hour limit reached' },
].map((event) => ({ ...event, request: requests.findLast((one) => one.seat === event.to && one.at >= event.at - MINUTE)?.number ?? 0 }));

const usage = [0, 2, 5, 6, 6, 12, 18, 18, 22, 24, 24, 26, 26, 30, 38, 49, 49, 57].map((percent, index, all) => ({
  at: NOW - Math.round((all.length - index) * 0.29 * 86_400),
  window: 'weekly',
  usedBp: percent * 100,
}));

export const answers = {
  requests,
  // A new device's own, which nothing came before.
  first: [{ ...requests[1], device: 'MacBook Air', model: 'claude-opus-5-5' }],
  switches,
  usageHistory: usage,
  tokens: [
    { day: '2026-12-01', device: 'MacBook Pro', model: 'claude-opus-5-5', requests: 212, input: 1_204_000, output: 48_000, cacheRead: 9_100_000, cacheWrite: 410_000 },
  ],
  settings: {
    host: ['127.0.0.1', '100.84.12.1'],
    port: 18_787,
    limitPct: 100,
    tokenRefresh: true,
    routing: 'price',
    holdS: 0,
    historyDays: 7,
    proxy: null,
    language: 'system',
  },
  addresses: {
    candidates: [
      { kind: 'loopback', ip: '127.0.0.1', interface: 'lo0' },
      { kind: 'tailscale', ip: '100.84.12.1', interface: 'utun4' },
      { kind: 'lan', ip: '192.168.0.12', interface: 'en0' },
    ],
    url: 'http://100.84.12.1:18787',
  },
  test: [
    { step: 'listen', ok: true, words: '', kind: null, ms: 2 },
    { step: 'ping', ok: true, words: '', kind: null, ms: 4 },
    { step: 'ping', ok: true, words: '', kind: null, ms: 5 },
    { step: 'upstream', ok: true, words: '', kind: null, ms: 212 },
  ],
  connect: {
    login: {
      shell: "export ANTHROPIC_BASE_URL=http://100.84.12.1:18787\nexport ANTHROPIC_CUSTOM_HEADERS='x-router-key: KEY'\nexport ENABLE_TOOL_SEARCH=true\n",
      settings: '{\n  "env": {\n    "ANTHROPIC_BASE_URL": "http://100.84.12.1:18787",\n    "ANTHROPIC_CUSTOM_HEADERS": "x-router-key: KEY",\n    "ENABLE_TOOL_SEARCH": "true"\n  }\n}\n',
      vscode: '{\n  "claudeCode.environmentVariables": [\n    {\n      "name": "ANTHROPIC_BASE_URL",\n      "value": "http://100.84.12.1:18787"\n    },\n    {\n      "name": "ANTHROPIC_CUSTOM_HEADERS",\n      "value": "x-router-key: KEY"\n    }\n  ]\n}\n',
    },
    token: {
      shell: 'export ANTHROPIC_BASE_URL=http://100.84.12.1:18787\nexport ANTHROPIC_AUTH_TOKEN=KEY\nexport ENABLE_PROMPT_CACHING_1H=1\nexport ENABLE_TOOL_SEARCH=true\n',
      settings: '{\n  "env": {\n    "ANTHROPIC_AUTH_TOKEN": "KEY",\n    "ANTHROPIC_BASE_URL": "http://100.84.12.1:18787",\n    "ENABLE_PROMPT_CACHING_1H": "1",\n    "ENABLE_TOOL_SEARCH": "true"\n  }\n}\n',
      vscode: '{\n  "claudeCode.environmentVariables": [\n    {\n      "name": "ANTHROPIC_BASE_URL",\n      "value": "http://100.84.12.1:18787"\n    },\n    {\n      "name": "ANTHROPIC_AUTH_TOKEN",\n      "value": "KEY"\n    }\n  ]\n}\n',
    },
  },
  addDevice: { id: 'd4', name: 'MacBook Air', key: 'rk-0123456789abcdef3fQ9' },
};

/** Runs in the page, before it: Tauri's side of the wire, with what was recorded. */
function standIn({ snapshot, facts, answers, theme }) {
  if (theme) document.documentElement.dataset.theme = theme;
  const heard = new Map();
  const said = [];
  let next = 1;
  const callbacks = new Map();
  const commands = {
    snapshot: () => snapshot,
    facts: () => facts,
    launch_at_login: ({ enabled }) => ({ state: (enabled ?? true) ? 'on' : 'off' }),
    save_file: ({ name }) => ({ path: `~/Downloads/${name}` }),
    crash_report: () => 'thread panicked',
    command: ({ command }) => {
      if (command.verb === 'set' && command.key.startsWith('app.')) return null;
      if (answers[command.verb] === 'never') return new Promise(() => {});
      if (command.verb === 'connect') return { block: answers.connect[command.mode][command.form].replace('KEY', command.key), url: '' };
      if (command.verb === 'requests' && command.device === 'd4') return answers.first;
      if (command.verb === 'requests' && command.device) return answers.requests.filter((one) => one.device === snapshot.devices.find((device) => device.id === command.device)?.name).slice(0, command.limit);
      if (command.verb === 'requests' && command.seat) return answers.requests.filter((one) => one.seat === snapshot.seats.find((seat) => seat.id === command.seat)?.label);
      return answers[command.verb] ?? null;
    },
    'plugin:event|listen': ({ event, handler }) => heard.set(event, [...(heard.get(event) ?? []), handler]) && handler,
  };
  globalThis.isTauri = true;
  globalThis.__TAURI_INTERNALS__ = {
    metadata: { currentWindow: { label: 'test' }, currentWebview: { label: 'test' } },
    transformCallback: (callback) => callbacks.set(next, callback) && next++,
    invoke: async (name, args) => {
      said.push(name === 'command' ? args.command : { invoke: name, ...args });
      const refusal = globalThis.__shell.refusals[name === 'command' ? args.command.verb : name];
      if (refusal) throw refusal;
      return commands[name]?.(args ?? {}) ?? null;
    },
  };
  globalThis.__shell = {
    said,
    refusals: {},
    emit: (event, payload) => (heard.get(event) ?? []).forEach((id) => callbacks.get(id)({ event, id, payload })),
  };
}

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.svg': 'image/svg+xml' };
/** The policy that the shell gives its pages. */
const POLICY = "default-src 'self'; connect-src ipc: http://ipc.localhost 'self'; img-src 'self' data:";

/** Serves the built pages on loopback. */
export async function serve() {
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url, 'http://x').pathname);
    const file = join(dist, path);
    if (!file.startsWith(dist) || !existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'text/plain', 'content-security-policy': POLICY });
    response.end(readFileSync(file));
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** The system's Chromium, or nothing where there is none. */
export function chromiumPath() {
  const known = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome', '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'];
  return process.env.CHROMIUM ?? known.find(existsSync) ?? null;
}

export async function launch() {
  return chromium.launch({ executablePath: chromiumPath(), args: ['--no-sandbox', '--font-render-hinting=none', '--disable-lcd-text'] });
}

export const SIZES = {
  panel: { width: 360, height: 620 },
  settings: { width: 720, height: 530 },
  onboarding: { width: 640, height: 488 },
  connect: { width: 920, height: 488 },
  activity: { width: 860, height: 508 },
};

/** What somebody named in their language. */
export const spoken = (what, language) =>
  language === 'ko' ? JSON.parse(JSON.stringify(what).replaceAll('"This Mac"', '"이 Mac"')) : what;

/** Opens a page in a state. Everything it complains about ends up in `page.complaints`. */
export async function open(browser, base, options) {
  const { page: name, hash = '', snapshot = 'five', theme = 'light', language = 'en', scale = 1, motion = 'reduce' } = options;
  const context = await browser.newContext({
    viewport: options.size ?? SIZES[name],
    deviceScaleFactor: scale,
    colorScheme: theme,
    reducedMotion: motion,
    locale: language === 'ko' ? 'ko-KR' : 'en-GB',
    timezoneId: 'UTC',
  });
  const page = await context.newPage();
  page.complaints = [];
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && page.complaints.push(message.text()));
  await page.clock.setFixedTime(NOW * 1_000);
  await page.addInitScript(standIn, {
    snapshot: spoken(typeof snapshot === 'string' ? snapshots[snapshot] : snapshot, language),
    facts: { ...facts, language, ...options.facts, preferences: { ...facts.preferences, ...options.preferences } },
    answers: spoken({ ...answers, ...options.answers }, language),
    theme: null,
  });
  if (options.before) await page.addInitScript(options.before);
  await page.goto(`${base}/${name}.html${hash ? `#${hash}` : ''}`);
  await page.waitForFunction(() => document.querySelector('#app')?.firstElementChild);
  await page.evaluate(() => document.fonts.ready);
  await page.waitForTimeout(30);
  return page;
}
