// The log of requests, as it is looked at: fetched anew when something happened, unless held.

import { untrack } from 'svelte';

import type { Snapshot } from './bindings/Snapshot';
import { say, sentence } from './ipc';
import type { RequestRow, SwitchRow } from './verbs';

/** No more rows than this are shown. */
export const ROWS = 500;

export type Filter = { device: string | null; seat: string | null; failed: boolean };

export class Log {
  requests = $state.raw<RequestRow[]>([]);
  switches = $state.raw<SwitchRow[]>([]);
  failed = $state<string | null>(null);
  held = $state(false);
  filter = $state<Filter>({ device: null, seat: null, failed: false });

  constructor(snapshot: () => Snapshot) {
    $effect(() => {
      // What moves whenever a request was handled.
      void snapshot().devices.map((device) => device.requests).join();
      void snapshot().switches[0]?.at;
      const { device, seat, failed } = this.filter;
      if (this.held) return;
      untrack(() => void this.fetch({ device, seat, failed }));
    });
  }

  async fetch({ device, seat, failed }: Filter): Promise<void> {
    try {
      const chosen = { ...(device ? { device } : {}), ...(seat ? { seat } : {}), ...(failed ? { failed } : {}) };
      [this.requests, this.switches] = await Promise.all([
        say({ verb: 'requests', limit: ROWS, ...chosen }),
        say({ verb: 'switches', limit: 200 }),
      ]);
      this.failed = null;
    } catch (error) {
      this.failed = sentence(error);
    }
  }
}
