// The recorded snapshots, as the router's own tests keep them.

import type { Snapshot } from '../lib/bindings/Snapshot';
import type { Facts } from '../lib/facts';

const recorded = import.meta.glob<Snapshot>('../../../crates/gateway/tests/snapshots/*.json', { eager: true, import: 'default' });

export type State =
  | 'first-load' | 'none' | 'one' | 'three' | 'five' | 'six' | 'all-resting' | 'all-paused' | 'rows' | 'unnamed' | 'paused' | 'draining' | 'needs-login'
  | 'needs-permission' | 'throttled' | 'offline' | 'port-busy' | 'address-gone' | 'settings-refused' | 'key-refused'
  | 'connected' | 'korean-long-names';

/** A copy of one, to change at will. */
export function snapshot(state: State): Snapshot {
  const found = recorded[`../../../crates/gateway/tests/snapshots/${state}.json`];
  if (!found) throw new Error(`no snapshot is called ${state}`);
  return structuredClone(found);
}

export const states = Object.keys(recorded).map((path) => path.split('/').at(-1)?.replace('.json', '') as State);

/** What the shell knows of a Mac that has been set up. */
export const facts: Facts = {
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
    menuBar: 'icon',
    percent: 'used',
    resets: 'left',
    hideNames: false,
    keepAwake: false,
    checkUpdates: false,
    notify: { allResting: true, attention: true, runsDry: false, back: false, newDevice: false, refusedDevice: false },
  },
  sandbox: false,
};
