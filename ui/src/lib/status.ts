// The status line: what it says and offers, the gravest thing first.

import type { Problem } from './bindings/Problem';
import type { Snapshot } from './bindings/Snapshot';
import type { Facts } from './facts';
import type { Key } from './i18n';
import { isTailscale, oldest, staleSince, type Button, type Glyph } from './model';

export type Status = {
  glyph: Glyph;
  /** Whether devices are served: then, and only then, it is green. */
  live: boolean;
  title: Key;
  /** A text, the router's own (of a setting that it refused, maybe), or the forecast. */
  line: { key: Key; values?: Record<string, string | number> } | { text: string; refused?: true } | 'forecast';
  buttons: Button[];
};

/** Devices would be kept out by this, so it is asked first. */
const onlyThisMac: Button = {
  label: 'act.onlyThisMac',
  act: { do: 'onlyThisMac' },
  ask: { line: 'status.onlyThisMacAsk', yes: 'act.onlyThisMacYes', no: 'act.keep' },
};

/** What is said of a problem with which devices are served all the same, this Mac at least. */
const lines: Partial<Record<Problem['kind'], Key>> = {
  devicesDamaged: 'status.devicesDamaged',
  overloaded: 'status.overloaded',
  throttled: 'status.slowed',
  loginsRefused: 'status.loginsRefused',
  challenged: 'status.challenged',
  wrongPlace: 'status.wrongPlace',
  storeMovedAside: 'status.storeMovedAside',
  storeTakesNothing: 'status.storeTakesNothing',
  noStore: 'status.storeTakesNothing',
};

const portOf = (address: string | null) => Number(address?.split(':').at(-1) ?? 0);

/** The status line: the gravest thing first. */
export function status(snapshot: Snapshot, facts: Facts): Status {
  const stopped = (title: Key, line: Status['line'], buttons: Button[]): Status => ({
    glyph: 'cross',
    live: false,
    title,
    line,
    buttons,
  });
  const { router } = facts;
  const find = (kind: Problem['kind']) => snapshot.problems.find((problem) => problem.kind === kind);
  const busy = find('portBusy');
  if (busy || (router.state === 'failed' && router.code === 'portBusy')) {
    const port = router.state === 'failed' && router.port ? router.port : portOf(busy?.address ?? null);
    const holder = (router.state === 'failed' ? router.holder : null) ?? busy?.holder;
    return stopped(
      'status.notListening',
      holder ? { key: 'status.portBusyBy', values: { port, holder } } : { key: 'status.portBusy', values: { port } },
      [
        { label: 'act.usePort', values: { port: port + 1 }, act: { do: 'usePort', port: port + 1 } },
        { label: 'act.choose', act: { do: 'choosePort' } },
      ],
    );
  }
  const denied = find('portRefused');
  if (denied) {
    return stopped('status.notListening', { key: 'status.portRefused', values: { port: portOf(denied.address) } }, [
      { label: 'act.choose', act: { do: 'choosePort' } },
    ]);
  }
  if (router.state === 'heldByService') {
    return {
      glyph: 'ring',
      live: false,
      title: 'status.held',
      line: { key: 'status.heldLine' },
      buttons: [
        {
          label: 'act.takeOver',
          act: { do: 'takeOver' },
          ask: { line: 'status.takeOverAsk', yes: 'act.takeOverYes', no: 'act.takeOverNo' },
        },
      ],
    };
  }
  if (router.state === 'failed' && router.code === 'settingsRefused') {
    return stopped('status.settingsRefused', { text: router.words, refused: true }, [
      { label: 'act.openSettings', act: { do: 'settings' } },
      { label: 'act.retry', act: { do: 'retry' } },
    ]);
  }
  if (router.state === 'failed' && router.code === 'addressGone' && snapshot.listening.length === 0) {
    return stopped('status.notListening', { key: 'status.addressGone' }, [
      onlyThisMac,
      { label: 'act.retry', act: { do: 'retry' } },
    ]);
  }
  if (router.state === 'failed') {
    return stopped('status.notListening', { text: router.words }, [{ label: 'act.retry', act: { do: 'retry' } }]);
  }
  if (router.state === 'starting') {
    return { glyph: 'ring', live: false, title: 'status.starting', line: { key: 'status.startingLine' }, buttons: [] };
  }
  if (facts.quitting) {
    return { glyph: 'ring', live: false, title: 'status.quitting', line: { key: 'status.quittingLine' }, buttons: [] };
  }
  if (snapshot.routing.paused) {
    return {
      glyph: 'pause',
      live: false,
      title: 'status.paused',
      line: { key: 'status.pausedLine' },
      buttons: [{ label: 'act.resume', act: { do: 'resume' } }],
    };
  }
  if (find('offline')) {
    return { glyph: 'ring', live: false, title: 'status.offline', line: { key: 'status.offlineLine' }, buttons: [] };
  }
  const gone = find('addressGone');
  if (gone) {
    const tailscale = isTailscale(gone.address);
    return {
      glyph: 'warn',
      // Whoever is on this machine is still served.
      live: snapshot.listening.length > 0 && snapshot.next.kind === 'seat',
      title: tailscale ? 'status.tailscaleOff' : 'status.addressOff',
      line: { key: 'status.unreachable' },
      buttons: [
        ...(tailscale ? [{ label: 'act.openTailscale', act: { do: 'openTailscale' } } as const] : []),
        onlyThisMac,
      ],
    };
  }
  if (snapshot.seats.length === 0) {
    return {
      glyph: 'ring',
      live: false,
      title: 'status.noAccount',
      line: { key: 'status.noAccountLine' },
      buttons: [
        { label: 'act.copyClaude', act: { do: 'copyLogin', seat: null } },
        { label: 'act.rescan', act: { do: 'rescan' } },
      ],
    };
  }
  const { next } = snapshot;
  if (next.kind === 'nobody') {
    const asleep: Omit<Status, 'title' | 'line'> = { glyph: 'ring', live: false, buttons: [] };
    switch (next.why) {
      case 'resting':
        return { ...asleep, title: 'status.resting', line: { key: 'status.restingLine' } };
      case 'paused':
        return { ...asleep, glyph: 'pause', title: 'status.allPaused', line: { key: 'status.allPausedLine' } };
      case 'renewing':
      case 'loginDelayed':
      case 'returning':
        return { ...asleep, title: 'status.renewing', line: { key: 'status.renewingLine' } };
      case 'loginsRefused':
        return { ...asleep, title: 'status.nobody', line: { key: 'status.loginsRefused' } };
      case 'noSeat':
      case 'needLogin':
      case 'notAllowed':
      case 'exhausted':
        return { ...asleep, glyph: 'warn', title: 'status.nobody', line: { key: 'status.nobodyLine' } };
    }
  }
  const routing = { glyph: 'dot', live: true, title: 'status.routing' } as const;
  if (facts.crash) {
    return {
      ...routing,
      line: { key: 'status.crashed' },
      buttons: [
        { label: 'act.copyReport', act: { do: 'copyReport' } },
        { label: 'act.dismiss', act: { do: 'dismiss' } },
      ],
    };
  }
  if (facts.iconHidden) {
    return { ...routing, line: { key: 'status.iconHidden' }, buttons: [{ label: 'act.menuBar', act: { do: 'menuBar' } }] };
  }
  const refused = find('settingsRefused');
  if (refused) {
    return { ...routing, line: { text: refused.words, refused: true }, buttons: [{ label: 'act.openSettings', act: { do: 'settings' } }] };
  }
  const passing = snapshot.problems.map(({ kind }) => lines[kind]).find((key) => key !== undefined);
  if (passing) return { ...routing, line: { key: passing }, buttons: [] };
  const throttled = snapshot.seats.filter((seat) => (seat.throttledUntil ?? 0) > snapshot.now);
  if (throttled.some((seat) => staleSince(oldest(seat), snapshot.now) !== null)) {
    return { ...routing, line: { key: 'status.throttled' }, buttons: [] };
  }
  return { ...routing, line: 'forecast', buttons: [] };
}
