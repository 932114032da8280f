// A device's key, as it may be seen.

/** Stands in a block for the key that is not there yet, or not shown. Nobody's key: it opens nothing. */
export const STAND_IN = 'rk-of-the-device';

const DOTS = '••••';

/** How the key begins and its last four letters; only dots before there is one. */
export function masked(key: string | null): string {
  if (key === null) return DOTS + DOTS;
  const start = key.match(/^[a-z]+[-_]/)?.[0] ?? '';
  return start + DOTS + key.slice(-4);
}
