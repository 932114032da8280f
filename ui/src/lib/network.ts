// Who may connect, as a choice of addresses to listen on.

import type { Facts } from './facts';
import type { Key } from './i18n';
import type { Address } from './verbs';

export type Kind = Address['kind'];

/** Each with what there is to say of it, and what is said where there is no such address. */
export const choices: { kind: Kind; title: Key; line: Key; missing: Key }[] = [
  { kind: 'loopback', title: 'who.loopback', line: 'who.loopbackLine', missing: 'who.loopbackLine' },
  { kind: 'tailscale', title: 'who.tailscale', line: 'who.tailscaleLine', missing: 'who.tailscaleMissing' },
  { kind: 'lan', title: 'who.lan', line: 'who.lanLine', missing: 'who.lanMissing' },
];

/** What the system adds to a choice, if anything: only macOS asks before others are let in from the local network. */
export const lineOf = (choice: (typeof choices)[number], platform: Facts['platform']): Key | null =>
  choice.kind === 'lan' && platform !== 'macos' ? null : choice.line;

const LOOPBACK = '127.0.0.1';

/** The addresses to listen on for a choice; this machine itself is always let in. */
export function hostsOf(kind: Kind, addresses: Address[]): string[] {
  const address = addresses.find((address) => address.kind === kind);
  return kind === 'loopback' || !address ? [LOOPBACK] : [LOOPBACK, address.ip];
}

/** What a change does that reaches further than this machine. */
export type Effect = 'opens' | 'cutsOff' | 'moves';

/** The effects of going `from` one choice `to` another, where `others` devices have keys: those that are asked about. */
export function effects(from: Kind | null, to: Kind, others: number): Effect[] {
  if (from === to) return [];
  const leaves = from !== 'loopback' && others > 0;
  return [
    ...(to === 'lan' ? (['opens'] as const) : []),
    ...(leaves ? ([to === 'loopback' ? 'cutsOff' : 'moves'] as const) : []),
  ];
}

/** The choice that the settings amount to; none of them if they were written by hand otherwise. */
export function kindOf(hosts: string[], addresses: Address[]): Kind | null {
  const kinds = hosts.map((host) =>
    host === 'localhost' || host.startsWith('127.') || host === '::1'
      ? 'loopback'
      : (addresses.find((address) => address.ip === host)?.kind ?? null),
  );
  if (kinds.includes(null)) return null;
  return kinds.includes('lan') ? 'lan' : kinds.includes('tailscale') ? 'tailscale' : 'loopback';
}
