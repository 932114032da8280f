// Sentences that are put together from a snapshot.

import type { SeatView } from './bindings/SeatView';
import type { Snapshot } from './bindings/Snapshot';
import type { Switch } from './bindings/Switch';
import { isToday, plan, weekday } from './format';
import { live, momentInWords, reset, t, time } from './live.svelte';
import { causeKey, lead, limitKey, oldest, restNote, row, staleSince, tightest, troubleKey, whyKey, windows } from './model';
import type { SwitchRow } from './verbs';

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
  if (state.keeps !== null) return t('note.reserve', { percent: `${state.keeps}%` });
  const since = oldest(seat);
  if (since === null) return t('note.unread');
  if (seat.throttledUntil !== null && staleSince(since, live.now) !== null) {
    return t('note.throttled', { when: momentInWords(since) });
  }
  const lasts = tightest(seat)?.lastsUntil ?? null;
  return lasts === null
    ? t('note.read', { when: momentInWords(since) })
    : t('note.lasts', { when: momentInWords(lasts) });
}

/** Why the work moved, in a sentence. */
export function cause(snapshot: Snapshot, event: Pick<Switch, 'from' | 'cause' | 'limit'>): string {
  const seat = nameById(snapshot, event.from);
  return event.cause === 'limit' && event.limit
    ? t('cause.limitOf', { seat, limit: limitName(event.limit) })
    : t(causeKey[event.cause], { seat });
}

/** The limit that the router's words name as reached. */
export const limitIn = (words: string) => words.match(/^(.+) limit reached$/)?.[1] ?? null;

/** The same of a switch in the log. */
export const causeOf = (snapshot: Snapshot, { from, cause: why, words }: SwitchRow) =>
  cause(snapshot, { from, cause: why, limit: limitIn(words) });

/** Why the seat that is next is next. */
export function whyNext(snapshot: Snapshot): string {
  const [{ next, seats }, seat] = [snapshot, lead(snapshot)];
  if (next.kind !== 'seat' || !seat) return '';
  const fullest = tightest(seat);
  const week = windows(seat)[1]?.resetsAt ?? null;
  switch (next.why) {
    case 'mostRoom':
      if (!fullest) break;
      return t('why.mostRoomOf', {
        percent: `${100 - Math.min(100, Math.floor(fullest.used / 100))}%`,
        limit: limitName(fullest.family ?? (fullest.kind === 'fiveHour' ? '5-hour' : fullest.kind)),
      });
    case 'roomToSpare':
      if (week !== null) return t('why.roomToSpareUntil', { when: momentInWords(week) });
      break;
    case 'onlyOne':
      if (seats.length > 1) return t('why.onlyNow');
      break;
  }
  return t(next.why !== 'firstInOrder' && seats.every((one) => one.readAt === null) ? 'why.unread' : whyKey[next.why]);
}

/** The age of what is shown of `seats`: of the oldest that is said to be old, else of the latest reading. */
export function updated(seats: SeatView[]): { text: string; old: boolean } {
  const old = seats.flatMap((seat) => row(seat, live.now).staleSince ?? []);
  if (old.length > 0) return { text: t('age.from', { when: momentInWords(Math.min(...old)) }), old: true };
  const said = (text: string) => ({ text, old: false });
  const read = Math.max(...seats.map((seat) => seat.readAt ?? 0), 0);
  const minutes = Math.floor((live.now - read) / 60);
  if (read === 0) return said(t(live.now - (live.snapshot?.startedAt ?? 0) < 60 ? 'age.started' : 'age.none'));
  if (minutes < 1) return said(t('age.now'));
  return said(minutes < 60 ? t('age.minutes', { n: minutes }) : t('age.at', { when: momentInWords(read) }));
}

/** A seat's organisation, unless it names a person: that of a single person is called by their address. */
export const organizationOf = ({ organization }: SeatView) =>
  live.facts?.preferences.hideNames || organization?.includes('@') ? null : organization;

/** When a seat that rests is back: the time, or the day alone if it is another. */
export const back = (at: number) =>
  t('row.back', { when: isToday(at, live.now, live.style) ? time(at) : weekday(at, live.style) });

/** A window's reset beside a row: when the seat is back, what it keeps, how old it is, or the reset itself. */
export function aside(seat: SeatView): { text: string; old: boolean } {
  const state = row(seat, live.now);
  if (state.staleSince !== null) return { text: t('row.at', { when: time(state.staleSince) }), old: true };
  if (state.keeps !== null) return { text: t('row.keeps', { percent: `${state.keeps}%` }), old: false };
  if (state.back_at !== null) return { text: back(state.back_at), old: false };
  const since = staleSince(tightest(seat)?.observedAt, live.now);
  if (since !== null) return { text: t('row.at', { when: time(since) }), old: true };
  return { text: reset(tightest(seat)?.resetsAt), old: false };
}

/** What the router would not take of the settings, as far as its words tell which it is. */
function refusedSetting(words: string): string {
  const [, path, least, most] = words.match(/^`([^`]+)` must be(?: a number from (\d+) to (\d+))?/) ?? [];
  if (path === undefined) return words;
  const setting = path.split('.').at(-1) ?? path;
  const named = ranges.find((name) => name === setting);
  const what = named && most ? t(`refused.${named}`, { least: least ?? '', most }) : t('refused.another', { setting });
  return t('status.settingsKept', { what });
}

/** What the router says for itself, in the reader's words where it is of a setting. */
export const told = ({ text, refused }: { text: string; refused?: true }) => (refused ? refusedSetting(text) : text);

/** The settings that are numbers in a range, and have words of their own. */
const ranges = ['limitPct', 'reservePct', 'port', 'holdS', 'historyDays'] as const;
