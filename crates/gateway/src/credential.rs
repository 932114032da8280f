//! A login as Claude Code stores it: a [`Document`] at the [`Place`] where a profile keeps it, written back there by a
//! [`Store`]; and what of it is held in memory, which is never printed.

mod login;
mod error;
mod document;
mod store;
mod files;

pub use document::{Document, Place};
pub use error::{CredentialError, KeychainError, NotOurs, WriteError};
pub use files::Files;
pub use login::{Credential, Pair, Secret};
pub use store::{Mark, Store};

use crate::profile::Profile;
use crate::reads::Asking;

/// The login that `profile` keeps in `store`.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn read(store: &dyn Store, profile: &Profile, asking: &Asking<'_>) -> Result<Credential, CredentialError> {
    store
        .read(profile, asking)?
        .credential()
        .ok_or(CredentialError::LoggedOut)
}
