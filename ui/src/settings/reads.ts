// What was read of the owner's logins, taken apart for people.

import type { Read } from '../lib/bindings/Read';
import type { SeatView } from '../lib/bindings/SeatView';

const ITEM = 'Keychain item ';

/** The item or the file that was read, and whose it is where the router knows. */
export function readOf({ what, seat }: Read, seats: SeatView[]): { item: string | null; file: string; seat: SeatView | null } {
  const item = what.startsWith(ITEM) ? what.slice(ITEM.length) : null;
  return { item, file: what, seat: seats.find(({ label }) => label === seat) ?? null };
}
