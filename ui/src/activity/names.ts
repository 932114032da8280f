// How requests are named in the log.

import type { Snapshot } from '../lib/bindings/Snapshot';
import { t } from '../lib/live.svelte';
import { whyKey } from '../lib/model';
import type { RequestRow } from '../lib/verbs';

export const deviceName = (snapshot: Snapshot, id: string | null) =>
  snapshot.devices.find((device) => device.id === id)?.name ?? id ?? t('device.unknown');

export const whyOf = (request: RequestRow) => (request.why && whyKey[request.why] ? t(whyKey[request.why]) : '');

/** How a request that was not served ended. */
export function outcome(request: RequestRow): string {
  if (request.status === 429) return t('outcome.limit');
  if (request.status === 401 || request.status === 403) return t('outcome.refused');
  return t('outcome.status', { status: request.status });
}
