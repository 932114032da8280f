//! The names of Claude Code's Keychain items, and the list of those that exist. Nothing here reads a secret.

use std::path::Path;
use std::{fs, io};

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use unicode_normalization::UnicodeNormalization as _;

use crate::profile::Profile;

/// The service of the default directory's item; the others' have a suffix.
const SERVICE: &str = "Claude Code-credentials";
/// The account of items whose owner's name has unusual characters.
const ODD_ACCOUNT: &str = "claude-code-user";

/// An item as its attributes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which program's secret, and of which directory.
    pub service: String,
    /// Whose.
    pub account: String,
    /// When it was last written.
    pub modified: Timestamp,
}

/// What lists items by their attributes, without their secrets and without a dialog.
pub trait Listing: Send + Sync {
    /// The items of that account.
    ///
    /// # Errors
    /// If they cannot be listed.
    fn items(&self, account: &str) -> io::Result<Vec<Item>>;
}

/// The account under which Claude Code keeps its items for that user.
pub fn account(user: Option<&str>) -> String {
    let usual = |name: &&str| {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.bytes().all(usual)
    };
    user.filter(usual).unwrap_or(ODD_ACCOUNT).to_owned()
}

/// A name that a directory's item may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The item's service.
    pub service: String,
    /// What `CLAUDE_CONFIG_DIR` says where Claude Code uses that name; `None` where it is not set.
    pub config_dir: Option<String>,
}

/// The names that the item of `profile` may have, the likeliest first. Claude Code hashes the directory's name as it
/// was given, and nobody told us how that was.
pub fn names(profile: &Profile) -> Vec<Name> {
    let given = profile.dir.to_string_lossy();
    let bare = given.trim_end_matches('/').to_owned();
    let real = fs::canonicalize(&profile.dir).ok();
    let real = real.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    let mut texts = vec![bare.clone(), format!("{bare}/"), real.to_string(), format!("{real}/")];
    texts.retain(|text| text.len() > 1);
    let mut names: Vec<Name> = Vec::new();
    if profile.is_default() {
        names.push(Name {
            service: SERVICE.into(),
            config_dir: None,
        });
    }
    for text in texts {
        let name = Name {
            service: format!("{SERVICE}-{}", suffix(&text)),
            config_dir: Some(text),
        };
        if names.iter().all(|known| known.service != name.service) {
            names.push(name);
        }
    }
    names
}

/// The first eight hex digits of the text's hash, in composed form.
fn suffix(text: &str) -> String {
    let composed: String = text.nfc().collect();
    let hash = Sha256::digest(composed.as_bytes());
    hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// What tells one state of an item from another. A time counts in seconds, so that two writes can look like one: an
/// item that was written just now is another one a little later, and looked at once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemMark {
    service: String,
    modified: Timestamp,
    settled: bool,
}

impl Item {
    /// Its mark at `now`.
    pub fn mark(&self, now: Timestamp) -> ItemMark {
        ItemMark {
            service: self.service.clone(),
            modified: self.modified,
            settled: now.duration_since(self.modified).abs() > SETTLED,
        }
    }
}

const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// The items of this Mac.
#[cfg(target_os = "macos")]
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMac;

#[cfg(target_os = "macos")]
impl Listing for ThisMac {
    fn items(&self, account: &str) -> io::Result<Vec<Item>> {
        use security_framework::item::{ItemClass, ItemSearchOptions, Limit};
        /// `errSecItemNotFound`.
        const NONE: i32 = -25_300;
        let found = ItemSearchOptions::new()
            .class(ItemClass::generic_password())
            .account(account)
            .load_attributes(true)
            .limit(Limit::All)
            .search();
        match found {
            Ok(found) => Ok(found
                .iter()
                .filter_map(attributes)
                .filter(|item| item.service.starts_with(SERVICE))
                .collect()),
            Err(error) if error.code() == NONE => Ok(Vec::new()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// The attributes that we want of one result.
#[cfg(target_os = "macos")]
fn attributes(found: &security_framework::item::SearchResult) -> Option<Item> {
    use core_foundation::base::{CFType, TCFType as _};
    use core_foundation::date::CFDate;
    use core_foundation::dictionary::CFDictionary;
    use core_foundation::string::CFString;
    use security_framework::item::SearchResult;
    /// The system counts from the beginning of 2001.
    const EPOCH: f64 = 978_307_200.0;
    let SearchResult::Dict(found) = found else { return None };
    #[expect(
        unsafe_code,
        reason = "an attribute dictionary has text keys and typed values, by its documentation"
    )]
    let found: CFDictionary<CFString, CFType> =
        unsafe { CFDictionary::wrap_under_get_rule(found.as_concrete_TypeRef()) };
    let value = |key: &'static str| found.find(CFString::from_static_string(key));
    let text = |key| Some(value(key)?.downcast::<CFString>()?.to_string());
    let modified = value("mdat")?.downcast::<CFDate>()?.abs_time() + EPOCH;
    Some(Item {
        service: text("svce")?,
        account: text("acct")?,
        modified: Timestamp::from_millisecond((modified * 1_000.0) as i64).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_03_an_unusual_user_name_has_the_fixed_account() {
        for (user, want) in [
            (Some("me"), "me"),
            (Some("first.last"), "first.last"),
            (Some("a_b-C9"), "a_b-C9"),
            (Some("first.last@example.test"), ODD_ACCOUNT),
            (Some("jürg"), ODD_ACCOUNT),
            (Some("with space"), ODD_ACCOUNT),
            (Some("\"; delete"), ODD_ACCOUNT),
            (Some(""), ODD_ACCOUNT),
            (None, ODD_ACCOUNT),
        ] {
            assert_eq!(account(user), want, "{user:?}");
        }
    }

    #[test]
    fn kc_04_a_directorys_item_is_named_after_its_path() {
        let named = |dir: &str| names(&Profile::named(dir.into(), String::new()));
        // The heads of `printf %s /Users/me/.claude-work | shasum -a 256`, and so on.
        for (dir, want) in [
            ("/Users/me/.claude-work", "1e91dd84"),
            ("/Users/me/.claude-work/", "1e91dd84"),
            ("/Users/me/.claude-caf\u{e9}", "2635661a"),
            ("/Users/me/.claude-cafe\u{301}", "2635661a"),
        ] {
            let names = named(dir);
            assert_eq!(names[0].service, format!("{SERVICE}-{want}"), "{dir}");
            assert!(names.iter().all(|name| name.service != SERVICE), "{dir}: {names:?}");
        }
        assert_eq!(
            named("/Users/me/.claude-work")[1].config_dir.as_deref(),
            Some("/Users/me/.claude-work/")
        );
    }

    #[test]
    fn kc_04_the_real_path_and_the_default_directorys_suffix_are_candidates_too() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(home.join("real")).unwrap();
        fs::create_dir_all(home.join(".claude")).unwrap();
        std::os::unix::fs::symlink(home.join("real"), home.join("link")).unwrap();
        let texts = |profile: &Profile| -> Vec<_> { names(profile).into_iter().map(|name| name.config_dir).collect() };
        let path = |name: &str| Some(home.join(name).display().to_string());
        let linked = Profile::named(home.join("link"), String::new());
        assert_eq!(
            texts(&linked),
            [path("link"), path("link/"), path("real"), path("real/")]
        );

        let settings = crate::config::Config::parse(br#"{"routerKey":"rk-test-0001"}"#)
            .unwrap()
            .unwrap();
        let paths = crate::paths::Paths::new(&home, None, |_| None);
        let default = &crate::profile::discover(&settings, &paths)[0];
        assert_eq!(texts(default), [None, path(".claude"), path(".claude/")]);
        assert_eq!(names(default)[0].service, SERVICE);
    }

    #[test]
    fn an_item_that_was_just_written_is_looked_at_once_more() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let item = Item {
            service: SERVICE.into(),
            account: "me".into(),
            modified: at(100),
        };
        assert_eq!(item.mark(at(100)), item.mark(at(101)));
        assert_ne!(item.mark(at(101)), item.mark(at(103)));
        assert_eq!(item.mark(at(103)), item.mark(at(900)));
    }
}
