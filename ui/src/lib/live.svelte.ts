// What the page shows: the last snapshot, the shell's facts, the moment. Nothing else is kept.

import type { Snapshot } from './bindings/Snapshot';
import type { Facts } from './facts';
import * as format from './format';
import { load, translate, type Key, type Values } from './i18n';
import { ask, listen, say } from './ipc';

class Live {
  snapshot = $state.raw<Snapshot | null>(null);
  facts = $state.raw<Facts | null>(null);
  /** Now, in seconds since the epoch, by the router's clock; it ticks with the minute. */
  now = $state(0);
  /** The router's clock less the page's. */
  #skew = 0;

  style: format.Style = $derived({
    language: this.facts?.language ?? 'en',
    hour12: format.systemCountsToTwelve(),
    percent: this.facts?.preferences.percent ?? 'used',
    resets: this.facts?.preferences.resets ?? 'left',
  });

  /** Takes in what was heard. */
  show(snapshot: Snapshot): void {
    this.#skew = snapshot.now - Date.now() / 1_000;
    this.snapshot = snapshot;
    this.now = snapshot.now;
  }

  /** Takes in what the shell knows, once its language is there. */
  async know(facts: Facts): Promise<void> {
    await load(facts.language);
    this.facts = facts;
  }

  tick(): void {
    this.now = Math.floor(Date.now() / 1_000 + this.#skew);
  }
}

export const live = new Live();

/** Fetches what there is, and listens for what comes. The clock stands still while the page is hidden. */
export async function follow(): Promise<void> {
  listen('snapshot', (snapshot) => live.show(snapshot));
  listen('facts', (facts) => void live.know(facts));
  const [snapshot, facts] = await Promise.all([ask('snapshot'), ask('facts')]);
  live.show(snapshot);
  await live.know(facts);
  let timer = 0;
  const ticking = () => {
    clearTimeout(timer);
    if (document.hidden) return;
    live.tick();
    timer = window.setTimeout(ticking, 60_000 - (Date.now() % 60_000));
  };
  document.addEventListener('visibilitychange', ticking);
  timer = window.setTimeout(ticking, 60_000 - (Date.now() % 60_000));
}

/** The text of `key` in the owner's language. `{mac}` is the machine that the page is on. */
export function t(key: Key, values?: Values): string {
  const language = live.style.language;
  const mac = translate(language, `machine.${live.facts?.platform ?? 'macos'}`);
  return translate(language, key, { mac, ...values });
}

/** A share as the owner reads it. */
export const percent = (basisPoints: number | null | undefined) => format.percent(basisPoints, live.style);
/** The time of day. */
export const time = (at: number) => format.time(at > live.now ? format.minute(at) : at, live.style);
/** A moment, with its day if it is not today. */
export const moment = (at: number) => format.moment(at, live.now, live.style);
/** The day of the year. */
export const date = (at: number) => format.date(at, live.style);
/** A moment within a sentence. */
export const momentInWords = (at: number) => 
  format.moment(at, live.now, live.style, live.style.language === 'ko' ? 'long' : 'short');
/** A window's reset, as a countdown or a time. */
export const reset = (at: number | null | undefined) => format.reset(at, live.now, live.style);
/** The time until then. */
export const countdown = (at: number) => format.countdown(at, live.now, live.style.language);

/** Turns all percents over, and remembers it. */
export const flipPercent = () => remember('percent', live.style.percent === 'used' ? 'left' : 'used');
/** Turns all resets between countdown and time of day, and remembers it. */
export const flipResets = () => remember('resets', live.style.resets === 'left' ? 'clock' : 'left');

/** Remembers one of the app's own choices. */
export async function remember<Name extends keyof Facts['preferences']>(
  name: Name,
  value: Facts['preferences'][Name],
): Promise<void> {
  if (live.facts) live.facts = { ...live.facts, preferences: { ...live.facts.preferences, [name]: value } };
  await say({ verb: 'set', key: `app.${name}`, value });
}
