//! A device's key: made by chance, kept as a hash, and looked up in a time that says nothing of it.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// A new key: 256 bits from the system, in hexadecimal.
///
/// # Panics
/// If the system has no randomness: it can keep no key secret.
pub(crate) fn new_key() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("a system without randomness can keep no key secret");
    format!("rk-{}", hex(&bytes))
}

/// A key's hash. One round is enough: nobody guesses 256 bits of chance.
#[derive(Clone, Copy, Debug, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of `key`, whatever it is.
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

// Two hashes are compared in constant time, and the table's own hashing is seeded by the system: how long a look-up
// takes says nothing about a key that is nearly right.
impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> Self {
        hex(&hash.0)
    }
}

impl TryFrom<String> for KeyHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let wrong = "64 hexadecimal digits";
        let mut hash = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong);
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).map_err(|_| wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong)?;
        }
        Ok(Self(hash))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
