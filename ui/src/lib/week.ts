// The shape of a week: what was used, what an even pace would be, where this pace leads.

import type { WindowView } from './bindings/WindowView';
import type { UsagePoint } from './verbs';

const WEEK = 7 * 86_400;

export type Point = { x: number; y: number };

export type Week = {
  start: number;
  end: number;
  /** Shares from 0 to 1 over the week from 0 to 1. */
  used: Point[];
  now: Point;
  /** Where the week ends at this pace, from 0 to more than 1; nothing if too little is known. */
  ahead: number | null;
};

/** The week that `window` is in, or nothing while it has not begun. */
export function week(window: WindowView | undefined, points: UsagePoint[], now: number): Week | null {
  if (!window || window.resetsAt === null) return null;
  const [start, end] = [window.resetsAt - WEEK, window.resetsAt];
  const at = (moment: number, share: number): Point => ({ x: (moment - start) / WEEK, y: share / 10_000 });
  const here = at(now, window.used);
  const seen = points
    .filter((point) => point.window === 'weekly' && point.at >= start && point.at < now)
    .sort((one, other) => one.at - other.at)
    .map((point) => at(point.at, point.usedBp));
  // A day of the week says too little about the rest of it.
  const ahead = here.x >= 1 / 14 && here.y > 0 ? here.y / here.x : null;
  return { start, end, used: [{ x: 0, y: 0 }, ...seen, here], now: here, ahead };
}
