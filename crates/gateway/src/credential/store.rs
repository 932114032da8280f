//! What a place where logins are kept can do.

use std::ffi::OsString;

use jiff::Timestamp;

use super::document::{Document, Place};
use super::error::{CredentialError, NotOurs, WriteError};
use crate::file;
use crate::items::ItemMark;
use crate::lock::WriteLock;
use crate::profile::Profile;
use crate::reads::Asking;

/// What tells one state of a stored login from another, without reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The file's.
    pub file: Option<file::Mark>,
    /// The Keychain item's; an error where the items cannot be listed.
    pub item: Option<Result<ItemMark, ()>>,
}

/// Where Claude Code keeps its logins.
pub trait Store: Send + Sync {
    /// The mark of `profile`'s login.
    fn mark(&self, profile: &Profile, now: Timestamp) -> Mark;

    /// The document that `profile` keeps; where it keeps two, the one whose login lasts longer.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    fn read(&self, profile: &Profile, asking: &Asking<'_>) -> Result<Document, CredentialError>;

    /// The document at that place, whatever lies elsewhere.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    fn read_at(&self, profile: &Profile, place: &Place, asking: &Asking<'_>) -> Result<Document, CredentialError>;

    /// Whether `document` is one that we could write.
    ///
    /// # Errors
    /// If only Claude Code can.
    fn admits(&self, _document: &Document) -> Result<(), NotOurs> {
        Ok(())
    }

    /// Puts `document` where it was read, whole or not at all. All of the profile's locks must be held. Read it back
    /// before you believe that it is there.
    ///
    /// # Errors
    /// If it was not written, or may not have been.
    fn write(
        &self,
        profile: &Profile,
        document: &Document,
        lock: &WriteLock<'_>,
        now: Timestamp,
    ) -> Result<(), WriteError>;

    /// Whether a read may wait for a person. Then no request waits for it.
    fn may_wait(&self) -> bool {
        false
    }

    /// Forgets that its owner said no, since they ask now.
    fn forget_refusals(&self) {}

    /// What `CLAUDE_CONFIG_DIR` must say for Claude Code to find this login; `None` where it must not be set.
    fn config_dir(&self, profile: &Profile) -> Option<OsString> {
        (!profile.is_default()).then(|| profile.dir.clone().into())
    }
}
