// Why a step of the test failed, as people say it. The router tells it to programs; what it said stays to be looked up.

import type { Key } from '../lib/i18n';
import type { Step } from '../lib/verbs';

/** By the word that the router has for it. */
const causes: Record<string, Key> = {
  name: 'fault.blocked',
  connect: 'fault.blocked',
  service: 'fault.otherProgram',
  key: 'fault.key',
  wrong_key: 'fault.key',
  seat: 'fault.nobody',
  no_seat: 'fault.nobody',
  not_allowed: 'fault.nobody',
  paused: 'fault.paused',
  all_full: 'fault.full',
  exhausted: 'fault.full',
  need_login: 'fault.login',
  logins_refused: 'fault.login',
  login_delayed: 'fault.renewing',
  renewing: 'fault.renewing',
  unreachable: 'fault.network',
  broken: 'fault.network',
};

/** What to say of a step that failed. */
export function cause({ step, words }: Pick<Step, 'step' | 'words'>): Key {
  if (step === 'listen') return 'fault.address';
  // The ping begins with its own step's name, the question to Anthropic ends with why it was not asked.
  const word = step === 'ping' ? /^(\w+):/ : /could not ask Anthropic: (\w+)/;
  const known = causes[word.exec(words)?.[1] ?? ''];
  if (known) return known;
  if (/did not answer in time/.test(words)) return 'fault.slow';
  if (/refused the login/.test(words)) return 'fault.login';
  return /answers with 5\d\d/.test(words) ? 'fault.anthropic' : 'fault.other';
}
