// Why something failed, a step of the test or a request, as people say it. The router tells it to programs; what it said stays to be looked up.

import type { Key } from '../lib/i18n';
import type { Step } from '../lib/verbs';

/** By the word that the router has for it. */
const causes: Record<string, Key> = {
  not_listening: 'fault.address',
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
  login_refused: 'fault.login',
  login_delayed: 'fault.renewing',
  renewing: 'fault.renewing',
  unreachable: 'fault.network',
  broken: 'fault.network',
  no_answer: 'fault.slow',
  trouble: 'fault.anthropic',
};

/** What to say of what the router has that word for, if it stands for something that failed. */
export const causeOfWord = (word: string): Key | null => causes[word] ?? null;

/** What to say of a step that failed. */
export const cause = ({ kind }: Pick<Step, 'kind'>): Key => causeOfWord(kind ?? '') ?? 'fault.other';
