// The settings as they are in force. Each change is made at once; what was refused is said, and the old value stays.

import { say, sentence, type Refused } from '../lib/ipc';
import type { Settings } from '../lib/verbs';

export class Choices {
  all = $state.raw<Settings | null>(null);
  failed = $state<string | null>(null);

  async load(): Promise<void> {
    try {
      this.all = await say({ verb: 'settings' });
      this.failed = null;
    } catch (error) {
      this.failed = sentence(error);
    }
  }

  /** Sets one of them; true where it is in force. */
  async set<Name extends keyof Settings>(key: Name, value: Settings[Name]): Promise<boolean> {
    const before = this.all;
    if (before) this.all = { ...before, [key]: value };
    return this.do(say({ verb: 'set', key, value }), () => (this.all = before));
  }

  /** Sets one of them for a field that says itself what was wrong: answers how it was refused, if it was. */
  async attempt<Name extends keyof Settings>(key: Name, value: Settings[Name]): Promise<Refused | null> {
    try {
      await say({ verb: 'set', key, value });
      if (this.all) this.all = { ...this.all, [key]: value };
      return null;
    } catch (error) {
      return error as Refused;
    }
  }

  /** Waits for what was said, and keeps what went wrong. */
  async do(doing: Promise<unknown>, undo?: () => void): Promise<boolean> {
    try {
      await doing;
      this.failed = null;
      return true;
    } catch (error) {
      undo?.();
      this.failed = sentence(error);
      return false;
    }
  }
}
