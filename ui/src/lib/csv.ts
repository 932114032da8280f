// Tables as text that a spreadsheet opens.

import type { TokenRow } from './verbs';

/** A cell. One that a spreadsheet would take for a formula is marked as text. */
function cell(value: string | number | null): string {
  const text = String(value ?? '');
  const safe = typeof value === 'string' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Tokens by day, device and model. */
export function tokens(rows: TokenRow[]): string {
  const head = ['day', 'device', 'model', 'requests', 'input', 'output', 'cache_read', 'cache_write'];
  const lines = rows.map((row) => [
    row.day,
    row.device,
    row.model,
    row.requests,
    row.input,
    row.output,
    row.cacheRead,
    row.cacheWrite,
  ]);
  return [head, ...lines].map((line) => line.map(cell).join(',')).join('\r\n') + '\r\n';
}
