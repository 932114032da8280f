//! Why a login is not read, or not written.

use std::io;

use crate::file::ReadError;

/// Why a Keychain item could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeychainError {
    /// The Keychain is locked: nobody is logged in at the screen, or it is a remote shell.
    #[error("the Keychain is locked")]
    Locked,
    /// macOS asks the owner, who said no or was not there. It is not asked again for a while.
    #[error("macOS asks for permission to read it from the Keychain")]
    Permission,
    /// The tool or the list failed; its exit status, where it has one.
    #[error("the Keychain cannot be read (status {0:?})")]
    Failed(Option<i32>),
}

/// Why a profile gives no login.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// There is none: never logged in, logged out, or other secrets only.
    #[error("not logged in")]
    LoggedOut,
    /// The file cannot be read at the moment, or what was read is no login.
    #[error("the stored login {0}")]
    Unreadable(#[source] ReadError),
    /// The Keychain item cannot be read at the moment.
    #[error(transparent)]
    Keychain(#[from] KeychainError),
}

/// Why a document was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Only Claude Code can write it, for that reason.
    #[error("{0}")]
    NotOurs(NotOurs),
    /// It could not be written, and is as it was.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// It may have been written, or not: reading it tells.
    #[error("the Keychain did not answer in time")]
    Unknown,
}

/// Why only Claude Code can write a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// It is longer than the system's tool takes.
    #[error("the Keychain item is too long for the system's tool")]
    TooLong,
    /// Part of it lies in a second item.
    #[error("the Keychain item overflows into a second one")]
    Overflows,
}
