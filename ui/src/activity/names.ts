// How requests are named in the log.

import { t } from '../lib/live.svelte';
import { reasonKey } from '../lib/model';
import type { RequestRow } from '../lib/verbs';

/** Why it went there. */
export function why(request: RequestRow): string {
  const key = reasonKey(request.reason);
  return key ? t(key) : request.reason;
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
