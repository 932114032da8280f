// The shell and the router, played: what was asked, what they answer, what they tell.

import { load } from '../lib/i18n';
import { live } from '../lib/live.svelte';
import type { Snapshot } from '../lib/bindings/Snapshot';
import type { Facts } from '../lib/facts';
import { facts as usual } from './snapshots';

type Said = { verb?: string; invoke?: string } & Record<string, unknown>;

export const said: Said[] = [];
export let answers: Record<string, unknown> = {};

async function invoke(name: string, args: Record<string, unknown> = {}): Promise<unknown> {
  if (name.startsWith('plugin:')) return 0;
  const command = args['command'] as Said | undefined;
  said.push(command ?? { invoke: name, ...args });
  const answer = answers[command?.verb ?? name];
  if (answer instanceof Error) throw { code: 'refused', message: answer.message };
  return (typeof answer === 'function' ? answer(command ?? args) : answer) ?? null;
}

// Before anything else is loaded: this file is the tests' set-up.
Object.assign(globalThis, { __TAURI_INTERNALS__: { invoke, transformCallback: () => 0 } });

/** Puts the page in front of a router in that state. */
export async function show(snapshot: Snapshot, facts: Partial<Facts> = {}, given: Record<string, unknown> = {}): Promise<void> {
  said.length = 0;
  answers = { requests: [], switches: [], usageHistory: [], addresses: [], ...given };
  location.hash = '';
  dispatchEvent(new Event('hashchange'));
  localStorage.clear();
  await load('en');
  await load('ko');
  live.show(snapshot);
  await live.know({ ...structuredClone(usual), ...facts });
}

/** What was said with that verb. */
export const saidOf = (verb: string) => said.filter((one) => one.verb === verb);
