// Sentences that are put together from a snapshot.

import type { SeatView } from './bindings/SeatView';
import type { Snapshot } from './bindings/Snapshot';
import type { Switch } from './bindings/Switch';
import { isToday, plan } from './format';
import { live, moment, momentInWords, reset, t, time } from './live.svelte';
import { causeKey, limitKey, restNote, row, tightest, troubleKey } from './model';

/** What to call a seat: its name; while names are hidden, the one that its owner chose, or its number. */
export function nameOf(seat: SeatView): string {
  if (!live.facts?.preferences.hideNames) return seat.label;
  return seat.name ?? t('seat.number', { n: numberOf(seat) });
}

/** What to call a seat's plan. */
export const planOf = (seat: SeatView) => (seat.plan ? plan(seat.plan) : null);

function numberOf(seat: SeatView): number {
  return (live.snapshot?.seats.findIndex((other) => other.id === seat.id) ?? 0) + 1;
}

/** The name of the seat with that id or label; one that is gone is an account. */
export function nameById(snapshot: Snapshot, id: string | null): string {
  const seat = snapshot.seats.find((seat) => seat.id === id || seat.label === id);
  return seat ? nameOf(seat) : t('seat.gone');
}

/** A limit's name, as it stands before the word *limit*. */
export function limitName(limit: string): string {
  const key = limitKey(limit);
  return key ? t(key) : limit;
}

/** What there is to say of a seat beyond its numbers; how old they are, if nothing else. */
export function note(seat: SeatView): string {
  const state = row(seat, live.now);
  if (seat.login) return t(troubleKey[seat.login]);
  switch (seat.state.kind) {
    case 'resting':
      return seat.state.limit && seat.state.cause === 'limit'
        ? t('note.limit', { limit: limitName(seat.state.limit), when: momentInWords(seat.state.until) })
        : t(restNote[seat.state.cause], { when: momentInWords(seat.state.until) });
    case 'readyBut':
      return t('note.family', { family: seat.state.family, when: momentInWords(seat.state.until) });
    case 'paused':
      return t('note.paused');
    case 'needsPermission':
      return t('note.needsPermission');
    case 'loggedOut':
    case 'expired':
    case 'refused':
      return t('note.login');
    case 'needsLogin':
      return t(troubleKey[seat.state.trouble]);
    case 'renewing':
      return t('note.renewing');
    case 'unreadable':
      return t('note.unreadable');
    case 'ready':
      break;
  }
  if (seat.draining) return t('note.draining');
  if (state.keeps !== null) return t('note.reserve');
  if (seat.throttledUntil !== null && state.staleSince !== null) {
    return t('note.throttled', { when: momentInWords(state.staleSince) });
  }
  if (seat.readAt === null) return t('note.unread');
  const lasts = tightest(seat)?.lastsUntil ?? null;
  return lasts === null
    ? t('note.read', { when: momentInWords(seat.readAt) })
    : t('note.lasts', { when: momentInWords(lasts) });
}

/** Why the work moved, in a sentence. */
export function cause(snapshot: Snapshot, event: Switch): string {
  const seat = nameById(snapshot, event.from);
  return event.cause === 'limit' && event.limit
    ? t('cause.limitOf', { seat, limit: limitName(event.limit) })
    : t(causeKey[event.cause], { seat });
}

/** The age of the latest reading. */
export function updated(snapshot: Snapshot): string {
  const read = Math.max(...snapshot.seats.map((seat) => seat.readAt ?? 0), 0);
  if (read === 0) return t('age.none');
  const minutes = Math.floor((live.now - read) / 60);
  if (minutes < 1) return t('age.now');
  return minutes < 60 ? t('age.minutes', { n: minutes }) : t('age.at', { when: momentInWords(read) });
}

/** A window's reset beside a row: when the seat is back, what it keeps, how old it is, or the reset itself. */
export function aside(seat: SeatView): { text: string; old: boolean } {
  const state = row(seat, live.now);
  if (state.staleSince !== null) return { text: t('row.at', { when: time(state.staleSince) }), old: true };
  if (state.keeps !== null) return { text: t('row.keeps', { percent: `${state.keeps}%` }), old: false };
  if (state.back_at !== null) {
    const today = isToday(state.back_at, live.now, live.style);
    return { text: today ? t('row.back', { when: time(state.back_at) }) : moment(state.back_at), old: false };
  }
  return { text: reset(tightest(seat)?.resetsAt), old: false };
}
