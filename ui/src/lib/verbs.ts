// What can be said to the router, and what it answers.

import type { Cause } from './bindings/Cause';
import type { ExtraUsage } from './bindings/ExtraUsage';
import type { Snapshot } from './bindings/Snapshot';

export type Mode = 'login' | 'token';
export type Form = 'shell' | 'settings' | 'vscode';

export type Command =
  | { verb: 'status' }
  | { verb: 'pause'; seat?: string }
  | { verb: 'resume'; seat?: string }
  | { verb: 'drain'; seat: string }
  | { verb: 'order'; seats: string[] }
  | { verb: 'rename'; seat: string; name: string | null }
  | { verb: 'reserve'; seat: string; percent: number }
  | { verb: 'limit'; seat: string; percent: number | null }
  | { verb: 'extraUsage'; seat: string; policy: ExtraUsage }
  | { verb: 'tryNow'; seat: string }
  | { verb: 'rescan' }
  | { verb: 'requests'; limit: number; before?: number; seat?: string; device?: string; failed?: boolean }
  | { verb: 'switches'; limit: number }
  | { verb: 'usageHistory'; seat: string; hours: number }
  | { verb: 'tokens'; days: number }
  | { verb: 'addDevice'; name: string; seats?: string[] }
  | { verb: 'revokeDevice'; id: string }
  | { verb: 'renameDevice'; id: string; name: string }
  | { verb: 'limitDevice'; id: string; seats: string[] | null }
  | { verb: 'settings' }
  | { verb: 'set'; key: string; value: unknown }
  | { verb: 'addresses' }
  | { verb: 'test' }
  | { verb: 'connect'; key: string; mode: Mode; form: Form };

export type Verb = Command;

/** A request that was handled: no body, no header, no address of an owner. */
export type RequestRow = {
  number: number;
  at: number;
  /** The device's name. */
  device: string;
  model: string | null;
  /** The seat's label; none where the router answered. */
  seat: string | null;
  status: number;
  /** Why that seat, or why none, in the router's words. */
  reason: string;
  tokens: { input: number; output: number; cacheRead: number; cacheWrite: number } | null;
  wholeMs: number;
  end: 'whole' | 'broken' | 'left';
  retries: number;
  /** The attempts before the one that was answered with; seats go by their labels. */
  attempts: { seat: string; cameOfIt: string }[];
};

/** The work moved with that request; seats go by their labels here. */
export type SwitchRow = { at: number; request: number; from: string; to: string; cause: Cause; words: string };

/** A share of a window at a moment. */
export type UsagePoint = { at: number; window: string; usedBp: number };

/** What one device used of one model on one day. */
export type TokenRow = {
  day: string;
  device: string;
  model: string;
  requests: number;
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
};

export type Address = { kind: 'loopback' | 'tailscale' | 'lan'; ip: string; interface: string };

/** One step of the test; the first that fails is the last. `ping` comes once for each address. */
export type Step = {
  step: 'listen' | 'ping' | 'upstream';
  ok: boolean;
  words: string;
  /** Why it failed, in a word. */
  kind: string | null;
  ms: number;
};

export type Answers = {
  status: Snapshot;
  requests: RequestRow[];
  switches: SwitchRow[];
  usageHistory: UsagePoint[];
  tokens: TokenRow[];
  addDevice: { id: string; name: string; key: string };
  settings: Settings;
  addresses: { candidates: Address[]; url: string };
  test: Step[];
  /** The block to copy, with that key in it. */
  connect: { block: string; url: string };
} & { [Other in Exclude<Command['verb'], AnsweredVerb>]: unknown };

type AnsweredVerb =
  | 'status'
  | 'requests'
  | 'switches'
  | 'usageHistory'
  | 'tokens'
  | 'addDevice'
  | 'settings'
  | 'addresses'
  | 'test'
  | 'connect';

/** `config.json`, defaults filled in, without the key. */
export type Settings = {
  host: string | string[];
  port: number;
  limitPct: number;
  tokenRefresh: boolean | 'delegate';
  routing: string;
  holdS: number;
  historyDays: number;
  proxy: string | null;
  language: 'system' | 'en' | 'ko';
};
