//! Logins in files, as Claude Code keeps them everywhere but on a Mac.

use std::fs;
use std::io::Write as _;

use jiff::Timestamp;

use super::document::{Document, Place};
use super::error::{CredentialError, WriteError};
use super::store::{Mark, Store};
use crate::file::{self, ReadError};
use crate::lock::WriteLock;
use crate::profile::Profile;
use crate::reads::Asking;

/// A credential file holds a few kilobytes.
const LIMIT: u64 = 1 << 20;

/// `.credentials.json` in the configuration directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Store for Files {
    fn mark(&self, profile: &Profile, _now: Timestamp) -> Mark {
        Mark {
            file: file::mark(&profile.credentials()),
            item: None,
        }
    }

    fn read(&self, profile: &Profile, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        let path = profile.credentials();
        let text = file::read(&path, LIMIT).map_err(|error| match error {
            ReadError::Absent => CredentialError::LoggedOut,
            error => CredentialError::Unreadable(error),
        })?;
        asking.note(path.display().to_string(), &profile.dir);
        Document::parse(text, Place::File).ok_or(CredentialError::Unreadable(ReadError::Damaged))
    }

    fn read_at(&self, profile: &Profile, _place: &Place, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        self.read(profile, asking)
    }

    fn write(
        &self,
        profile: &Profile,
        document: &Document,
        _lock: &WriteLock<'_>,
        _now: Timestamp,
    ) -> Result<(), WriteError> {
        // A link that its owner made survives: what it leads to is replaced.
        let path = profile.credentials();
        let target = fs::canonicalize(&path).unwrap_or(path);
        let folder = target.parent().unwrap_or(&profile.dir);
        let mut file = tempfile::Builder::new()
            .prefix(".credentials.json.tmp.")
            .rand_bytes(8)
            .tempfile_in(folder)?; // mode 0600
        file.write_all(document.text())?;
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|error| error.error)?;
        // The new name must outlast a loss of power, before the mark of the old token is taken away.
        Ok(fs::File::open(folder)?.sync_all()?)
    }
}
