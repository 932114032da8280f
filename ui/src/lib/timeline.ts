// Which account served when, and where the work moved: a lane each, over a day.

import type { Cause } from './bindings/Cause';
import type { RequestRow, SwitchRow } from './verbs';

const HOUR = 3_600;
/** Requests that are no further apart belong to one block. */
const GAP = 20 * 60;

export type Block = { from: number; to: number };
export type Lane = { seat: string; blocks: Block[] };
export type Pin = { at: number; request: number; seat: string; to: string; cause: Cause };

/** The lanes of `seats`, by their labels, from `start` to `end`: what the requests show, else what lies between the switches. */
export function lanes(seats: string[], requests: RequestRow[], switches: SwitchRow[], start: number, end: number): Lane[] {
  return seats.map((seat) => {
    const served = requests
      .filter((request) => request.seat === seat && request.status < 400 && request.at >= start)
      .map((request) => ({ from: request.at, to: Math.min(end, request.at + request.wholeMs / 1_000) }));
    return { seat, blocks: joined([...served, ...between(seat, switches, start)]) };
  });
}

/** The stretches in which `seat` served, as its switches tell: it came in with one and left with the next. */
function between(seat: string, switches: SwitchRow[], start: number): Block[] {
  const told = [...switches].sort((one, other) => one.at - other.at);
  return told.flatMap((event, index) => {
    if (event.from !== seat || event.at < start) return [];
    const came = told.slice(0, index).findLast((before) => before.to === seat);
    return came ? [{ from: Math.max(start, came.at), to: event.at }] : [];
  });
}

function joined(blocks: Block[]): Block[] {
  const all: Block[] = [];
  for (const block of blocks.sort((one, other) => one.from - other.from)) {
    const last = all.at(-1);
    if (last && block.from - last.to <= GAP) last.to = Math.max(last.to, block.to);
    else all.push({ ...block });
  }
  return all;
}

/** The switches as marks on the lane that was left. */
export const pins = (switches: SwitchRow[], start: number): Pin[] =>
  switches
    .filter((event) => event.at >= start && event.cause !== 'room')
    .map((event) => ({ at: event.at, request: event.request, seat: event.from, to: event.to, cause: event.cause }));

/** Whether every request that moved is known to have been answered; it is not known of what the log does not hold. */
export const noneLost = (pins: Pin[], requests: RequestRow[]) =>
  pins.length > 0 &&
  pins.every((pin) => requests.some((one) => one.number === pin.request && one.status < 400 && one.end !== 'broken'));

/** The hours to mark, every `step` of them, on the clock of a zone that is `offset` seconds ahead. */
export function hours(start: number, end: number, step: number, offset: number): number[] {
  const first = Math.ceil((start + offset) / (step * HOUR)) * step * HOUR - offset;
  return Array.from({ length: Math.max(0, Math.ceil((end - first) / (step * HOUR))) }, (_, index) => first + index * step * HOUR);
}
