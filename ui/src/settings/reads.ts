// What was read of the owner's logins, taken apart for people.

import type { SeatView } from '../lib/bindings/SeatView';

const ITEM = 'Keychain item ';
/** The item of the login that Claude Code uses where nothing is set; the others' names are hashes. */
const USUAL = 'Claude Code-credentials';

/** The item or the file that was read, and whose it is where its name tells. */
export function readOf(what: string, seats: SeatView[]): { item: string | null; file: string; seat: SeatView | null } {
  const item = what.startsWith(ITEM) ? what.slice(ITEM.length) : null;
  const holds = (dir: string) => (item === null ? what.startsWith(`${dir}/`) : item === USUAL && dir.endsWith('/.claude'));
  return { item, file: what, seat: seats.find((seat) => seat.dirs.some(holds)) ?? null };
}
