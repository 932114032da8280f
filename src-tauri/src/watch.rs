//! The watch: one thread that looks at the router and tells all who show it. It looks four times a second while a
//! window can be seen, and every few seconds otherwise, so that an idle app sleeps.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gateway::snapshot::Snapshot;
use jiff::tz::TimeZone;
use tauri::{AppHandle, Emitter as _, EventTarget, Manager as _};

use crate::awake;
use crate::facts::{Facts, RouterState};
use crate::glance::glance;
use crate::notices::Notices;
use crate::notify;
use crate::panel;
use crate::platform;
use crate::pulse::Pulse;
use crate::quit::{self, Patience};
use crate::shell::Shell;
use crate::tray::Tray;
use crate::update;
use crate::windows::Visible;

/// Between two looks while somebody looks on.
const WATCHED: Duration = Duration::from_millis(250);
/// Between two looks otherwise.
const ALONE: Duration = Duration::from_secs(5);

/// So many looks apart it is looked whether there is an icon.
const LOOKS_BETWEEN_ICONS: u32 = 8;

/// Watches until the app ends. `woken` hears of everything that should be looked at at once.
pub fn begin(app: &AppHandle, woken: Receiver<()>) {
    let (looking, hurrying) = (app.clone(), app.clone());
    let pulse = Pulse::begin(
        move || Shell::of(&looking).router.snapshot(),
        move || Shell::of(&hurrying).hurry(),
    );
    let mut watch = Watch {
        app: app.clone(),
        looks: 0,
        pulse,
        told: None,
        notices: Notices::default(),
        awake: awake::Awake::default(),
        update: update::Look::default(),
    };
    let begun = thread::Builder::new().name("watch".into()).spawn(move || {
        loop {
            let wait = watch.look();
            match woken.recv_timeout(wait) {
                // Whatever was said meanwhile, one look is enough; and two looks are never closer than that.
                Ok(()) => while woken.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    if let Err(error) = begun {
        tracing::error!("nothing will be shown: {error}");
    }
}

struct Watch {
    app: AppHandle,
    looks: u32,
    pulse: Pulse,
    /// What the windows were last told, and which windows.
    told: Option<(Snapshot, Facts, BTreeSet<String>)>,
    notices: Notices,
    awake: awake::Awake,
    update: update::Look,
}

impl Watch {
    /// Looks once, and says when to look again.
    fn look(&mut self) -> Duration {
        let app = self.app.clone();
        let shell = Shell::of(&app);
        shell.read_settings();
        let facts = shell.facts();
        let running = shell.router.snapshot();
        let (wanted, words) = (&facts.preferences, shell.words());
        if let Some(tray) = app.try_state::<Tray>() {
            // A router that does not answer is as good as none, whatever it says of itself.
            let heard = running.clone().map(|snapshot| match self.pulse.beats() {
                true => snapshot,
                false => Snapshot {
                    listening: Vec::new(),
                    ..snapshot
                },
            });
            let glance = glance(&facts.router, heard.as_ref(), wanted, &words);
            let paused = running.as_ref().is_some_and(|snapshot| snapshot.routing.paused);
            if let Err(error) = tray.show(glance, &words, paused, facts.quitting) {
                tracing::warn!("the icon could not be drawn: {error}");
            }
        }
        if let Some((_, before, _)) = &self.told
            && wanted.notify.wants_more_than(&before.preferences.notify)
        {
            notify::ask();
        }
        if let Some(snapshot) = &running {
            let notices = self.notices.look(snapshot, &wanted.notify);
            if !notices.is_empty() {
                notify::show(notify::word(&notices, snapshot, wanted, &words, &TimeZone::system()));
            }
        }
        // A system places an icon some time after it was made, and may put it away at any time.
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_BETWEEN_ICONS) {
            shell.set_icon_hidden(platform::is_icon_hidden(&app));
        }
        self.awake.keep(running.as_ref(), wanted.keep_awake);
        self.update.look(&app, wanted.check_updates);
        self.end_if_due(&shell, running.as_ref());
        let (quitting, visible) = (facts.quitting, app.state::<Visible>().labels());
        let watched = !visible.is_empty();
        self.tell(running.unwrap_or_else(|| shell.snapshot()), facts, visible);
        let panel = panel::end_hidden(&app).unwrap_or(ALONE);
        if watched || quitting { WATCHED } else { ALONE.min(panel) }
    }

    /// Tells the windows what they do not know yet.
    fn tell(&mut self, snapshot: Snapshot, facts: Facts, visible: BTreeSet<String>) {
        // The time alone is no news: a page has its own clock.
        let timeless = |snapshot: &Snapshot| Snapshot {
            now: 0,
            ..snapshot.clone()
        };
        let known = self.told.as_ref().filter(|(_, _, windows)| *windows == visible);
        let (new_snapshot, new_facts) = match known {
            Some((told, told_facts, _)) => (timeless(told) != timeless(&snapshot), *told_facts != facts),
            None => (true, true),
        };
        let seen = |target: &EventTarget| matches!(target, EventTarget::WebviewWindow { label } | EventTarget::Webview { label } if visible.contains(label));
        let mut told = Ok(());
        if new_snapshot {
            told = told.and(self.app.emit_filter("snapshot", &snapshot, seen));
        }
        if new_facts {
            told = told.and(self.app.emit_filter("facts", &facts, seen));
        }
        if let Err(error) = told {
            tracing::warn!("a window could not be told: {error}");
        }
        if new_snapshot || new_facts {
            self.told = Some((snapshot, facts, visible));
        }
    }

    /// Ends the app where it is to end.
    fn end_if_due(&mut self, shell: &Shell, running: Option<&Snapshot>) {
        let quiet = running.is_none_or(quit::is_quiet);
        // The command ended the router, and means the app.
        let ended = shell.router.was_ended() && shell.router.state() == RouterState::Starting;
        if (ended || shell.is_quitting() && quiet) && !shell.begin_ending() {
            quit::end(&self.app, Patience::Some);
        }
    }
}
