// What each row and line says, as values: the page only draws it.

import type { Cause } from './bindings/Cause';
import type { LoginTrouble } from './bindings/LoginTrouble';
import type { ReadWhy } from './bindings/ReadWhy';
import type { RestCause } from './bindings/RestCause';
import type { SeatView } from './bindings/SeatView';
import type { Snapshot } from './bindings/Snapshot';
import type { Why } from './bindings/Why';
import type { WindowView } from './bindings/WindowView';
import type { Key } from './i18n';

/** A reading older than this is said to be old, in seconds. */
export const STALE = 30 * 60;

export type Glyph = 'dot' | 'ring' | 'diamond' | 'pause' | 'warn' | 'cross' | null;

/** What a button of a row or line does. */
export type Act =
  | { do: 'allow'; seat: string }
  | { do: 'copyLogin'; seat: SeatView | null }
  | { do: 'tryNow'; seat: string }
  | { do: 'resume' }
  | { do: 'rescan' }
  | { do: 'usePort'; port: number }
  | { do: 'choosePort' }
  | { do: 'onlyThisMac' }
  | { do: 'openTailscale' }
  | { do: 'takeOver' }
  | { do: 'retry' }
  | { do: 'settings' }
  | { do: 'copyReport' }
  | { do: 'dismiss' }
  | { do: 'menuBar' };

export type Button = {
  label: Key;
  values?: Record<string, string | number>;
  act: Act;
  /** What is said before it is done, and the words for doing it and for leaving it. */
  ask?: { line: Key; yes: Key; no: Key };
};

/** A seat's row: either numbers, or a word in their place. */
export type Row = {
  glyph: Glyph;
  /** Whether the name stands back: it takes no part. */
  back: boolean;
  /** A word in place of the numbers. */
  words: { key: Key; values?: Record<string, string | number> } | null;
  button: Button | null;
  /** Whether its meters are drawn as idle: it cannot serve, or its numbers are old. */
  idle: boolean;
  /** When the latest of the numbers is from, if that is too long ago. */
  staleSince: number | null;
  /** When it is back, if it rests. */
  back_at: number | null;
  /** The share kept in reserve, if that is what holds it back. */
  keeps: number | null;
};

const bare: Row = {
  glyph: null,
  back: false,
  words: null,
  button: null,
  idle: false,
  staleSince: null,
  back_at: null,
  keeps: null,
};

/** What a seat's row shows. */
export function row(seat: SeatView, now: number): Row {
  const words = (glyph: Glyph, key: Key, button: Button | null = null, values?: Record<string, string | number>): Row => ({
    ...bare,
    glyph,
    words: values ? { key, values } : { key },
    button,
    back: glyph === 'pause' || glyph === 'ring',
  });
  const login = { label: 'act.copy', act: { do: 'copyLogin', seat } } as const;
  if (seat.draining && seat.state.kind !== 'paused') {
    return seat.inFlight > 0
      ? words('ring', 'seat.finishing', null, { n: seat.inFlight })
      : words('ring', 'seat.drained');
  }
  switch (seat.state.kind) {
    case 'paused':
      return words('pause', 'seat.paused');
    case 'needsPermission':
      return words('warn', 'seat.needsPermission', { label: 'act.allow', act: { do: 'allow', seat: seat.id } });
    case 'loggedOut':
      return words('warn', 'seat.loggedOut', login);
    case 'expired':
      return words('warn', 'seat.expired', login);
    case 'refused':
      return words('warn', 'seat.refused', login);
    case 'unreadable':
      return words('warn', 'seat.unreadable', { label: 'act.tryNow', act: { do: 'rescan' } });
    case 'renewing':
      return words('ring', 'seat.renewing');
    case 'needsLogin':
      switch (seat.state.trouble) {
        case 'retrying':
          return words('ring', 'seat.retrying', { label: 'act.tryNow', act: { do: 'rescan' } });
        case 'keychainLocked':
          return words('warn', 'seat.locked', { label: 'act.tryNow', act: { do: 'rescan' } });
        case 'keychainAsks':
          return words('warn', 'seat.needsPermission', { label: 'act.allow', act: { do: 'allow', seat: seat.id } });
        default:
          return words('warn', 'seat.expired', login);
      }
    case 'resting': {
      const key = restKey[seat.state.cause];
      if (key) return words('ring', key, { label: 'act.tryNow', act: { do: 'tryNow', seat: seat.id } });
      return { ...bare, idle: true, back_at: seat.state.until };
    }
    case 'ready':
    case 'readyBut': {
      const stale = staleSince(seat.readAt, now);
      const keeps = inReserve(seat) ? seat.reservePercent : null;
      return { ...bare, idle: stale !== null || keeps !== null, staleSince: stale, keeps };
    }
  }
}

function inReserve(seat: SeatView): boolean {
  const used = tightest(seat)?.used ?? 0;
  return seat.reservePercent > 0 && used >= (100 - seat.reservePercent) * 100;
}

/** When the oldest of a seat's numbers was seen: answers bring some of them and not others. */
export const oldest = ({ windows }: SeatView) =>
  windows.length > 0 ? Math.min(...windows.map((window) => window.observedAt)) : null;

/** When something was seen, if that is too long ago. */
export const staleSince = (seen: number | null | undefined, now: number) => (seen != null && now - seen > STALE ? seen : null);

/** The fullest window; of equals the one that resets last. */
export function tightest(seat: SeatView): WindowView | null {
  const fuller = (one: WindowView, other: WindowView) =>
    one.used - other.used || (one.resetsAt ?? 0) - (other.resetsAt ?? 0);
  return seat.windows.reduce<WindowView | null>((most, next) => (most && fuller(most, next) >= 0 ? most : next), null);
}

/** The windows to show: five hours and week always, so that unknown is seen to be unknown; of the families those that
 * the seat has, and all while it was not read. */
export function windows(seat: SeatView, families: string[] = []): (Pick<WindowView, 'kind' | 'family'> & Partial<WindowView>)[] {
  const find = (kind: string, family: string | null) =>
    seat.windows.find((window) => window.kind === kind && window.family === family) ?? { kind, family };
  const own = seat.windows.flatMap((window) => window.family ?? []);
  return [
    find('fiveHour', null),
    find('weekly', null),
    ...[...new Set(seat.readAt === null ? [...own, ...families] : own)].sort().map((family) => find('model', family)),
  ];
}

/** The families that any seat has a window for. */
export const families = (seats: SeatView[]) => [
  ...new Set(seats.flatMap((seat) => seat.windows.flatMap((window) => window.family ?? []))),
];

/** The others in the order of the panel: those who could serve, those who rest, those left out, those who need a person. */
export function others(seats: SeatView[], first: string | null, now: number): SeatView[] {
  const place = (seat: SeatView) => {
    const { glyph, back_at } = row(seat, now);
    return glyph === 'warn' ? 3 : glyph !== null ? 2 : back_at !== null ? 1 : 0;
  };
  const back = (seat: SeatView) => row(seat, now).back_at ?? 0;
  return seats
    .filter((seat) => seat.id !== first)
    .map((seat, index) => ({ seat, index }))
    .sort((one, other) => place(one.seat) - place(other.seat) || back(one.seat) - back(other.seat) || one.index - other.index)
    .map(({ seat }) => seat);
}

/** The seat that the page is about: who serves next, or who is back first. */
export function lead(snapshot: Snapshot): SeatView | null {
  const id = snapshot.next.seat;
  return snapshot.seats.find((seat) => seat.id === id) ?? null;
}

export const whyKey: Record<Why, Key> = {
  mostRoom: 'why.mostRoom',
  sameConversation: 'why.sameConversation',
  onlyOne: 'why.onlyOne',
  ownsId: 'why.ownsId',
  again: 'why.again',
  leastFull: 'why.leastFull',
  instead: 'why.instead',
  beyondPlan: 'why.beyondPlan',
  returnsFirst: 'why.returnsFirst',
  firstInOrder: 'why.firstInOrder',
  fullest: 'why.fullest',
  itsTurn: 'why.itsTurn',
  roomToSpare: 'why.roomToSpare',
  leastShort: 'why.leastShort',
};

/** The word of a rest that is no limit. */
const restKey: Partial<Record<RestCause, Key>> = {
  payment: 'rest.payment',
  noCredits: 'rest.payment',
  organization: 'rest.organization',
  login: 'seat.refused',
  notInPlan: 'rest.notInPlan',
  faults: 'rest.faults',
};

/** What there is to say of it. */
export const restNote: Record<RestCause, Key> = {
  limit: 'note.resting',
  extraUsage: 'note.extraUsage',
  payment: 'note.payment',
  noCredits: 'note.noCredits',
  organization: 'note.organization',
  login: 'note.refused',
  notInPlan: 'note.notInPlan',
  faults: 'note.faults',
};

/** The words in which the log says why, by what they mean. */
const reasons: Record<string, Why> = {
  'most room': 'mostRoom',
  'same conversation': 'sameConversation',
  'only seat': 'onlyOne',
  'owns the id': 'ownsId',
  'tried again': 'again',
  'least full': 'leastFull',
  'took over': 'instead',
  'beyond its plan': 'beyondPlan',
  'returns first': 'returnsFirst',
  'first in order': 'firstInOrder',
  'fullest first': 'fullest',
  'its turn': 'itsTurn',
  'room to spare this week': 'roomToSpare',
  'least short this week': 'leastShort',
};

/** Why a request went where it did, as the page says it; a reason that it does not know is said as it is. */
export const reasonKey = (words: string): Key | null => (reasons[words] ? whyKey[reasons[words]] : null);

export const troubleKey: Record<LoginTrouble, Key> = {
  retrying: 'trouble.retrying',
  cannotSave: 'trouble.cannotSave',
  cannotLock: 'trouble.cannotLock',
  unsaved: 'trouble.unsaved',
  rejected: 'trouble.rejected',
  uncertain: 'trouble.uncertain',
  unreadable: 'trouble.unreadable',
  keychainLocked: 'trouble.keychainLocked',
  keychainAsks: 'note.needsPermission',
  claudeCodes: 'trouble.claudeCodes',
  unproven: 'trouble.unproven',
};

/** What a login was read for. */
export const readKey: Record<ReadWhy, Key> = {
  first: 'read.first',
  changed: 'read.changed',
  again: 'read.again',
  refused: 'read.refused',
  asked: 'read.asked',
  renewal: 'read.renewal',
  write: 'read.write',
};

export const causeKey: Record<Cause, Key> = {
  limit: 'cause.limit',
  manual: 'cause.manual',
  token: 'cause.token',
  unreachable: 'cause.unreachable',
  room: 'cause.room',
};

/** The name of a limit, as it stands before the word *limit*. */
export const limitKey = (limit: string): Key | null =>
  limit === '5-hour' ? 'limit.fiveHour' : limit === 'weekly' ? 'limit.weekly' : null;

/** Whether an address is one of Tailscale's. */
export function isTailscale(address: string | null): boolean {
  const [first, second] = (address ?? '').split('.').map(Number);
  return (
    (first === 100 && (second ?? 0) >= 64 && (second ?? 0) < 128) || /\.ts\.net|^\[?fd7a:115c:a1e0:/.test(address ?? '')
  );
}

/** Whether only this machine can reach `address`. */
export const isLoopback = (address: string | null) => /^(127\.|localhost|\[?::1)/.test(address ?? '');

/** The command that logs in the seat: its own directory first, where that is not the usual one. */
export function loginCommand(seat: SeatView | null): string {
  const dir = seat?.dirs[0];
  return dir && !/\/\.claude$/.test(dir) ? `CLAUDE_CONFIG_DIR=${quoted(dir)} claude` : 'claude';
}

const quoted = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
