// The devices that have a key.

import type { DeviceView } from './bindings/DeviceView';
import type { Snapshot } from './bindings/Snapshot';

/** The id of the device whose key came with the settings. */
const FIRST = 'first';

/** Whether its key came with the settings: it cannot be revoked by itself. */
export const isFirst = (device: DeviceView) => device.id === FIRST;

/** How many other devices have a key. */
export const otherDevices = (snapshot: Snapshot) =>
  snapshot.devices.filter((device) => !device.revoked && !isFirst(device)).length;
