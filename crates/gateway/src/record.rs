//! What is written down of requests and switches: who, when, where to, at what cost and why. Never a body or a header.

use pool::outcome::Rejection;
use pool::standing::Out;
use pool::switch::Why;
use pool::{AccountId, Outcome};
use serde::{Deserialize, Serialize};

use crate::meter::Tokens;

/// How long a text from outside may be.
const LONGEST: usize = 120;

/// One request. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its number, in the order of arrival.
    pub number: i64,
    /// When it came.
    pub at: i64,
    /// The device that sent it.
    pub device: String,
    /// Its path, without a query.
    pub path: String,
    /// The model that it names.
    pub model: Option<String>,
    /// The conversation that it belongs to, as a hash.
    pub conversation: Option<u64>,
    /// The seat that answered; `None` where the router did.
    pub seat: Option<AccountId>,
    /// The answer's status.
    pub status: u16,
    /// Why that seat, or why none.
    pub reason: String,
    /// What it cost, where the answer said so.
    pub tokens: Option<Tokens>,
    /// Milliseconds until the answer's head.
    pub head_ms: u64,
    /// Milliseconds until its end.
    pub whole_ms: u64,
    /// How it ended.
    pub end: End,
    /// The attempts before the one that was answered with.
    pub attempts: Vec<Attempt>,
}

/// An attempt that was not answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The seat's id.
    pub seat: String,
    /// Why that one.
    pub reason: String,
    /// The status that it answered, if it answered.
    pub status: Option<u16>,
    /// What came of it, in a few words.
    pub came_of_it: String,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// To its last byte.
    Whole,
    /// The seat broke it off.
    Broken,
    /// The client left.
    Left,
}

impl End {
    /// A word that stands for it where it is kept.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Broken => "broken",
            Self::Left => "left",
        }
    }

    /// The end that `word` stands for.
    pub fn from_word(word: &str) -> Self {
        match word {
            "broken" => Self::Broken,
            "left" => Self::Left,
            _ => Self::Whole,
        }
    }
}

/// A conversation's move from one seat to another. The time is milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchRecord {
    /// When.
    pub at: i64,
    /// The request with which it moved.
    pub request: i64,
    /// Where it was.
    pub from: AccountId,
    /// Where it went.
    pub to: AccountId,
    /// What made it.
    pub cause: Cause,
    /// The same in a few words.
    pub words: String,
}

/// What makes a conversation move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Its seat has reached a limit, or is close to one.
    Limit,
    /// Its owner wanted it so.
    Manual,
    /// Its seat's login is of no use.
    Token,
    /// Its seat could not serve this turn.
    Unreachable,
    /// Another seat has much more room.
    Room,
}

impl Cause {
    const ALL: [Self; 5] = [Self::Limit, Self::Manual, Self::Token, Self::Unreachable, Self::Room];

    /// A word that stands for it where it is kept or shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Manual => "manual",
            Self::Token => "token",
            Self::Unreachable => "unreachable",
            Self::Room => "room",
        }
    }

    /// The cause that `word` stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.word() == word)
    }
}

impl Cause {
    /// What made a conversation move for that reason.
    pub fn of(why: &Why) -> Self {
        match why {
            Why::Out(Out::Full { .. } | Out::Trying | Out::NotInPlan) | Why::NearlyFull => Self::Limit,
            Why::Out(Out::Disabled | Out::Draining) | Why::Group | Why::Pinned => Self::Manual,
            Why::Out(Out::NoLogin) | Why::Gone => Self::Token,
            Why::Passing => Self::Unreachable,
            Why::MoreRoom => Self::Room,
        }
    }
}

/// What came of an attempt, in a few words.
pub fn came_of(outcome: &Outcome) -> String {
    let limits = |rejection: &Rejection| {
        let windows = rejection.windows.iter().map(|(kind, _)| kind.to_string());
        windows.collect::<Vec<_>>().join(" and ")
    };
    match outcome {
        Outcome::Limited(rejection) if rejection.windows.is_empty() => "limit reached".into(),
        Outcome::Limited(rejection) => format!("{} limit reached", limits(rejection)),
        Outcome::Beyond(_) => "it would go beyond its plan".into(),
        Outcome::Throttled => "too many at once".into(),
        Outcome::NoCredits | Outcome::Unpaid => "it wants to be paid first".into(),
        Outcome::Lacks(_) | Outcome::NoSuchModelHere | Outcome::UnknownModel => "not in its plan".into(),
        Outcome::Unauthorized | Outcome::OauthUnsupported => "its login was refused".into(),
        Outcome::NotAllowed => "its organisation does not allow it".into(),
        Outcome::WrongPlace | Outcome::Challenged => "not from this network".into(),
        Outcome::Overloaded => "overloaded".into(),
        Outcome::Faulty | Outcome::Unlucky => "a fault of the service".into(),
        Outcome::TimedOut | Outcome::Unreachable | Outcome::Broken => "no answer".into(),
        Outcome::Served | Outcome::PassedOn => "answered".into(),
    }
}

/// A text from outside, cut to what is kept of one.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_what_it_was_made_of() {
        for cause in Cause::ALL {
            assert_eq!(Cause::from_word(cause.word()), Some(cause));
        }
        for end in [End::Whole, End::Broken, End::Left] {
            assert_eq!(End::from_word(end.word()), end);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_its_letters() {
        assert_eq!(short(&"é".repeat(500)).chars().count(), LONGEST);
        assert_eq!(short("opus"), "opus");
    }
}
