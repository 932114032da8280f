// What another device needs to reach the router, as one block to copy.

import type { Form, Mode } from './verbs';

/** The variables of a mode. */
function variables(mode: Mode, url: string, key: string): [string, string][] {
  return mode === 'login'
    ? [
        ['ANTHROPIC_BASE_URL', url],
        ['ANTHROPIC_CUSTOM_HEADERS', `x-router-key: ${key}`],
        ['ENABLE_TOOL_SEARCH', 'true'],
      ]
    : [
        ['ANTHROPIC_BASE_URL', url],
        ['ANTHROPIC_AUTH_TOKEN', key],
        ['ENABLE_TOOL_SEARCH', 'true'],
        ['ENABLE_PROMPT_CACHING_1H', '1'],
      ];
}

export function block(mode: Mode, form: Form, url: string, key: string): string {
  const all = variables(mode, url, key);
  switch (form) {
    case 'shell':
      return all.map(([name, value]) => `export ${name}=${/[\s"$]/.test(value) ? `"${value}"` : value}`).join('\n');
    case 'settings':
      return JSON.stringify({ env: Object.fromEntries(all) }, null, 2);
    case 'vscode':
      return `"claudeCode.environmentVariables": [\n${all
        .map(([name, value]) => `  { "name": ${JSON.stringify(name)}, "value": ${JSON.stringify(value)} }`)
        .join(',\n')}\n]`;
  }
}

const DOTS = '••••';

/** A key as it may be seen: how it begins and its last four letters; only dots before there is one. */
export function masked(key: string | null): string {
  if (key === null) return DOTS + DOTS;
  const start = key.match(/^[a-z]+[-_]/)?.[0] ?? '';
  return start + DOTS + key.slice(-4);
}
