// A device on its way in: its name, its key once it has one, and whether it has called.

import type { Snapshot } from '../lib/bindings/Snapshot';
import { say } from '../lib/ipc';
import { isLoopback } from '../lib/model';
import type { Mode, RequestRow } from '../lib/verbs';

export type LinkState = 'ready' | 'waiting' | 'connected' | 'trouble';

export class NewDevice {
  name = $state('');
  made = $state.raw<{ id: string; key: string; name: string; at: number } | null>(null);
  first = $state.raw<RequestRow | null>(null);
  /** The ways to sign in whose block was copied. */
  copied = $state.raw<ReadonlySet<Mode>>(new Set());

  constructor(private readonly snapshot: () => Snapshot) {
    // The first request's own story, once there is one.
    $effect(() => {
      if (!this.isConnected || this.first || !this.made) return;
      const device = this.made.id;
      void say({ verb: 'requests', limit: 1, device }).then(([request]) => (this.first = request ?? null));
    });
  }

  /** Gives the device its key, the first time that the key is wanted: who only looks leaves no key behind. */
  async key(fallback: string, mode: Mode): Promise<string> {
    this.copied = new Set([...this.copied, mode]);
    const name = this.name.trim() || fallback;
    if (!this.made) {
      const { id, key } = await say({ verb: 'addDevice', name });
      this.made = { id, key, name, at: this.snapshot().now };
    }
    return this.made.key;
  }

  /** Calls it by what was typed since. */
  async rename(): Promise<void> {
    const name = this.name.trim();
    if (!this.made || !name || name === this.made.name) return;
    await say({ verb: 'renameDevice', id: this.made.id, name });
    this.made = { ...this.made, name };
  }

  get view() {
    return this.snapshot().devices.find((device) => device.id === this.made?.id) ?? null;
  }

  get isConnected(): boolean {
    return (this.view?.requests ?? 0) > 0;
  }

  /** A key that was turned away since this one was made. */
  get refused() {
    const refused = this.snapshot().activity?.refused ?? null;
    return refused && this.made && refused.at >= this.made.at ? refused : null;
  }

  get trouble(): 'notListening' | 'unreachable' | 'refused' | 'paused' | null {
    const snapshot = this.snapshot();
    if (snapshot.listening.length === 0) return 'notListening';
    if (this.#gone) return 'unreachable';
    if (this.refused) return 'refused';
    return snapshot.routing.paused ? 'paused' : null;
  }

  get state(): LinkState {
    if (this.isConnected) return 'connected';
    if (this.trouble) return 'trouble';
    return this.made ? 'waiting' : 'ready';
  }

  /** The address that is to be listened on and is not there now. */
  get #gone() {
    return this.snapshot().problems.find((problem) => problem.kind === 'addressGone')?.address ?? null;
  }

  /** Where devices are to connect to: while that is away only this machine is listened to, which is no address for them. */
  get address(): string | null {
    return this.#gone ?? this.snapshot().address;
  }

  /** Whether only this machine can reach the address. */
  get isLocal(): boolean {
    return isLoopback(this.address);
  }

  another(): void {
    this.name = '';
    this.made = null;
    this.first = null;
    this.copied = new Set();
  }
}
