// How requests are named in the log.

import type { Snapshot } from '../lib/bindings/Snapshot';
import { causeOfWord } from '../lib/cause';
import { family } from '../lib/format';
import { t } from '../lib/live.svelte';
import { reasonKey } from '../lib/model';
import type { RequestRow, SwitchRow } from '../lib/verbs';
import { cause, causeOf, limitIn, nameById } from '../lib/words';

/** Why it went there: what moved it, who could not serve it before, else what the router went by. */
export function why(request: RequestRow, switches: SwitchRow[], snapshot: Snapshot): string {
  const moved = switches.find((event) => event.request === request.number);
  if (moved) return causeOf(snapshot, moved);
  const key = reasonKey(request.reason);
  if (key === 'why.instead') {
    const before = request.attempts.at(-1);
    const limit = before && limitIn(before.cameOfIt);
    if (limit) return cause(snapshot, { from: before.seat, cause: 'limit', limit });
    if (before) return t('why.insteadOf', { seat: nameById(snapshot, before.seat) });
  }
  if (key === 'why.onlyOne' && request.model && snapshot.seats.length > 1) return t('why.onlyFor', { family: family(request.model) });
  if (request.reason === 'handed on') return t('why.handedOn');
  const failed = key ?? causeOfWord(request.reason);
  return failed ? t(failed) : request.reason;
}

/** How a request that was not served ended. */
export function outcome(request: RequestRow): string {
  if (request.status === 429) return t('outcome.limit');
  if (request.status === 401 || request.status === 403) return t('outcome.refused');
  return t('outcome.status', { status: request.status });
}

/** All that went in, from the cache or not; nothing where the answer did not say. */
export const input = ({ tokens }: RequestRow) => (tokens ? tokens.input + tokens.cacheRead + tokens.cacheWrite : null);

export const output = ({ tokens }: RequestRow) => tokens?.output ?? null;
