// The one way to the shell and the router behind it: each command with its answer.

import { invoke as raw } from '@tauri-apps/api/core';
import { listen as rawListen } from '@tauri-apps/api/event';

import type { Snapshot } from './bindings/Snapshot';
import type { Facts, LoginItem } from './facts';
import type { Answers, Verb } from './verbs';

export type Window = 'panel' | 'settings' | 'onboarding' | 'connect' | 'activity';
export type Link = 'terms' | 'releases' | 'project' | 'loginItems' | 'menuBarSettings' | 'tailscale' | 'logs';

/** Why something was not done: a word for programs, a sentence for people, and perhaps what to do. */
export type Refused = { code: string; message: string; hint?: string };

type Commands = {
  snapshot: { args: undefined; answer: Snapshot };
  facts: { args: undefined; answer: Facts };
  open_window: { args: { name: Window; section?: string }; answer: void };
  close_window: { args: undefined; answer: void };
  fit: { args: { height: number }; answer: void };
  launch_at_login: { args: { enabled?: boolean }; answer: LoginItem };
  copy: { args: { text: string; concealed?: boolean }; answer: void };
  open_link: { args: { link: Link }; answer: void };
  save_file: { args: { name: string; text: string }; answer: { path: string } };
  quit: { args: undefined; answer: void };
  take_over: { args: undefined; answer: void };
  start_router: { args: undefined; answer: void };
  finish_onboarding: { args: undefined; answer: void };
  crash_report: { args: undefined; answer: string };
  dismiss_crash: { args: undefined; answer: void };
  copy_diagnostics: { args: undefined; answer: void };
};

/** Asks the shell. Rejects with [`Refused`]. */
export function ask<Name extends keyof Commands>(
  name: Name,
  ...args: Commands[Name]['args'] extends undefined ? [] : [Commands[Name]['args']]
): Promise<Commands[Name]['answer']> {
  return raw(name, args[0]);
}

/** Says something to the router. Rejects with [`Refused`]. */
export function say<Said extends Verb>(command: Said): Promise<Answers[Said['verb']]> {
  return raw('command', { command });
}

type Events = { snapshot: Snapshot; facts: Facts; navigate: { section: string } };

/** A window is called by its page. */
const label = location.pathname.split('/').at(-1)?.replace('.html', '') ?? '';

/** Hears what is told to this window; without a target it would hear what is told to any. */
export function listen<Name extends keyof Events>(name: Name, heard: (payload: Events[Name]) => void): void {
  void rawListen<Events[Name]>(name, (event) => heard(event.payload), { target: { kind: 'WebviewWindow', label } });
}

/** What went wrong, as a sentence. */
export function sentence(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'message' in error) {
    const { message, hint } = error as Refused;
    return hint ? `${message} ${hint}` : message;
  }
  return String(error);
}
