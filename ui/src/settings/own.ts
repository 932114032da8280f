// A login that only this app uses: a configuration directory among its own.

import type { Facts } from '../lib/facts';

/** Where the app's settings lie, as a shell writes it. */
const places: Record<Facts['platform'], string> = {
  macos: '$HOME/Library/Application Support',
  linux: '${XDG_CONFIG_HOME:-$HOME/.config}',
};

/** The command that makes one. */
export const ownLogin = (platform: Facts['platform']) =>
  `CLAUDE_CONFIG_DIR="${places[platform]}/claude-proxy-router/logins/work" claude`;
