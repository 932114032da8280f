// Opens a page: waits for the first snapshot, then shows what it is given.

import { mount, type Component } from 'svelte';

import Page from '../parts/Page.svelte';
import { follow } from './live.svelte';
import { ask } from './ipc';

export function open(page: Component): void {
  const target = document.getElementById('app');
  if (!target) return;
  void follow().then(() => mount(Page, { target, props: { page } }));
  // A desktop's usual way to close a window; on a Mac the menu does it.
  addEventListener('keydown', (event) => {
    if (event.key === 'w' && (event.ctrlKey || event.metaKey)) void ask('close_window');
  });
}
