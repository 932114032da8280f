// Where the reader is within a page: its hash.

import { listen } from './ipc';

class Place {
  hash = $state(location.hash.slice(1));

  constructor() {
    addEventListener('hashchange', () => (this.hash = location.hash.slice(1)));
    listen('navigate', ({ section }) => this.go(section));
  }

  go(hash: string): void {
    location.hash = hash;
    this.hash = hash;
  }
}

export const place = new Place();
