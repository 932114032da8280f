// What the shell around the page knows, aside from the router.

export type RouterState =
  | { state: 'starting' }
  | { state: 'running' }
  | { state: 'heldByService'; pid?: number }
  | {
      state: 'failed';
      code: 'portBusy' | 'addressGone' | 'settingsRefused' | 'other';
      words: string;
      port?: number;
      holder?: string;
    };

export type Notify = {
  allResting: boolean;
  attention: boolean;
  runsDry: boolean;
  back: boolean;
  newDevice: boolean;
  refusedDevice: boolean;
};

/** The owner's choices for the app itself: the settings key `app`, defaults filled in. */
export type Preferences = {
  onboarded: boolean;
  menuBar: 'icon' | 'percent' | 'time';
  percent: 'used' | 'left';
  resets: 'left' | 'clock';
  hideNames: boolean;
  keepAwake: boolean;
  checkUpdates: boolean;
  notify: Notify;
};

export type Facts = {
  platform: 'macos' | 'linux';
  version: string;
  language: 'en' | 'ko';
  firstRun: boolean;
  router: RouterState;
  crash: { at: number } | null;
  iconHidden: boolean;
  update: { version: string } | null;
  quitting: boolean;
  preferences: Preferences;
  sandbox: boolean;
};

export type LoginItem = { state: 'on' | 'off' | 'needsApproval' | 'unavailable'; why?: 'moved' | 'bundle' };
