//! Which seat.

use alloc::sync::Arc;
use core::fmt;

/// A seat: a Claude account within an organisation. The text is stable across restarts and says nothing secret.
#[derive(Clone, Debug, Eq, PartialOrd, Ord)]
pub struct AccountId {
    key: Arc<str>,
    hash: u64,
}

impl AccountId {
    /// The seat of that key.
    pub fn new(key: &str) -> Self {
        // FNV-1a: the same in every run, so that ties fall alike after a restart.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self {
            key: key.into(),
            hash: key.bytes().fold(0xcbf2_9ce4_8422_2325, step),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.key
    }

    /// A number that stands for the key.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }
}

/// Each choice asks of every seat whether it is another: mostly the number says that it is not, without its text.
impl PartialEq for AccountId {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}
