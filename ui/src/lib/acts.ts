// What the buttons of rows and lines do.

import { ask, say } from './ipc';
import { loginCommand, type Act } from './model';

export async function run(act: Act): Promise<void> {
  switch (act.do) {
    case 'allow':
    case 'rescan':
      await say({ verb: 'rescan' });
      return;
    case 'copyLogin':
      return ask('copy', { text: loginCommand(act.seat) });
    case 'tryNow':
      await say({ verb: 'tryNow', seat: act.seat });
      return;
    case 'resume':
      await say({ verb: 'resume' });
      return;
    case 'usePort':
      await say({ verb: 'set', key: 'port', value: act.port });
      return ask('start_router');
    case 'choosePort':
      return ask('open_window', { name: 'settings', section: 'network' });
    case 'onlyThisMac':
      await say({ verb: 'set', key: 'host', value: '127.0.0.1' });
      return ask('start_router');
    case 'openTailscale':
      return ask('open_link', { link: 'tailscale' });
    case 'takeOver':
      return ask('take_over');
    case 'retry':
      return ask('start_router');
    case 'settings':
      return ask('open_window', { name: 'settings' });
    case 'copyReport':
      return ask('copy', { text: await ask('crash_report') });
    case 'dismiss':
      return ask('dismiss_crash');
    case 'menuBar':
      return ask('open_link', { link: 'menuBarSettings' });
  }
}
