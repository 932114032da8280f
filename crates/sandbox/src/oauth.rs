//! Tokens: who they belong to, which are live, and how a pair is rotated.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;

use crate::answer::Answer;
use crate::record::Recorded;
use crate::world::World;

const SCOPE: &str =
    "user:profile user:inference user:sessions:claude_code user:mcp_servers user:file_upload user:plugins";

/// What became of a refresh token that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was live: a new pair took the place of the old one, whether or not the caller learnt it.
    Rotated,
    /// It had been used before: the family is revoked, the live pair is dead.
    Reused,
    /// It is not known here, or died with its family.
    Unknown,
    /// The request was not one for a refresh, or not JSON.
    Malformed,
    /// A scripted answer was given and nothing happened to the tokens.
    Scripted,
}

/// One `POST /v1/oauth/token`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPost {
    /// Empty if there was none.
    pub refresh_token: String,
    pub verdict: Verdict,
    /// Milliseconds since the epoch.
    pub at_ms: i64,
}

struct Access {
    seat: String,
    expires_at_ms: i64,
    is_revoked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Refresh {
    Live,
    Used,
    Revoked,
}

/// Why a bearer is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Unknown,
    Dead,
}

/// All tokens ever handed out.
#[derive(Default)]
pub(crate) struct Tokens {
    access: HashMap<String, Access>,
    refresh: HashMap<String, (String, Refresh)>,
    minted: u64,
    pub(crate) posts: Vec<TokenPost>,
}

impl Tokens {
    pub(crate) fn admit(&mut self, seat: &str, access: &str, refresh: &str, expires_at_ms: i64) {
        let token = Access {
            seat: seat.to_owned(),
            expires_at_ms,
            is_revoked: false,
        };
        self.access.insert(access.to_owned(), token);
        self.refresh
            .insert(refresh.to_owned(), (seat.to_owned(), Refresh::Live));
    }

    /// The name of the seat this bearer opens.
    pub(crate) fn seat_of(&self, bearer: Option<&str>, now_ms: i64) -> Result<&str, Denied> {
        let token = bearer
            .and_then(|bearer| self.access.get(bearer))
            .ok_or(Denied::Unknown)?;
        if token.is_revoked || token.expires_at_ms <= now_ms {
            return Err(Denied::Dead);
        }
        Ok(&token.seat)
    }

    pub(crate) fn revoke_access(&mut self, access: &str) {
        if let Some(token) = self.access.get_mut(access) {
            token.is_revoked = true;
        }
    }

    /// Kills every token of the seat.
    pub(crate) fn revoke_family(&mut self, seat: &str) {
        for token in self.access.values_mut().filter(|token| token.seat == seat) {
            token.is_revoked = true;
        }
        for (owner, state) in self.refresh.values_mut() {
            if owner == seat && *state == Refresh::Live {
                *state = Refresh::Revoked;
            }
        }
    }

    /// Forgets the tokens of a seat that is being replaced.
    pub(crate) fn forget(&mut self, seat: &str) {
        self.access.retain(|_, token| token.seat != seat);
        self.refresh.retain(|_, (owner, _)| owner != seat);
    }
}

impl World {
    /// Gives the seat a new pair. The old access token dies at once: whoever still sends it has
    /// missed a rotation, and shall notice.
    pub(crate) fn mint(&mut self, index: usize, now_ms: i64) {
        self.tokens.minted += 1;
        let number = self.tokens.minted;
        let seat = &mut self.seats[index];
        self.tokens.revoke_access(&seat.access_token);
        if let Some((_, state)) = self.tokens.refresh.get_mut(&seat.refresh_token) {
            *state = Refresh::Used;
        }
        seat.access_token = format!("sk-ant-oat01-sandbox-{}-{number}", seat.name);
        seat.refresh_token = format!("sk-ant-ort01-sandbox-{}-{number}", seat.name);
        seat.expires_at_ms = now_ms + seat.token_lifetime_s * 1000;
        self.tokens
            .admit(&seat.name, &seat.access_token, &seat.refresh_token, seat.expires_at_ms);
    }

    /// `POST /v1/oauth/token`: the natural answer, and what it does to the tokens.
    pub(crate) fn token_post(&mut self, request: &Recorded, now_ms: i64) -> Answer {
        let is_json = request
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("application/json"));
        if !is_json {
            self.note_post(request, Verdict::Malformed);
            let message = "Rate limited. Please try again later.";
            return Answer::error(429, "rate_limit_error", message);
        }
        let Ok(grant) = serde_json::from_slice::<Grant>(&request.body) else {
            self.note_post(request, Verdict::Malformed);
            return refused("invalid_request", "The body is not a token request");
        };
        if grant.grant_type != "refresh_token" {
            self.note_post(request, Verdict::Malformed);
            return refused("unsupported_grant_type", "Only refresh_token is known here");
        }
        let (seat, state) = match self.tokens.refresh.get(&grant.refresh_token) {
            Some((seat, state)) => (seat.clone(), *state),
            None => (String::new(), Refresh::Revoked),
        };
        match (state, self.seat_index(&seat)) {
            (Refresh::Live, Some(index)) => {
                self.note_post(request, Verdict::Rotated);
                self.mint(index, now_ms);
                self.granted(index)
            }
            (Refresh::Used, _) => {
                self.note_post(request, Verdict::Reused);
                self.tokens.revoke_family(&seat);
                refused("invalid_grant", "Refresh token not found or invalid")
            }
            (Refresh::Revoked, _) | (Refresh::Live, None) => {
                self.note_post(request, Verdict::Unknown);
                refused("invalid_grant", "Refresh token not found or invalid")
            }
        }
    }

    pub(crate) fn note_post(&mut self, request: &Recorded, verdict: Verdict) {
        let refresh_token = serde_json::from_slice::<Grant>(&request.body)
            .map(|grant| grant.refresh_token)
            .unwrap_or_default();
        self.tokens.posts.push(TokenPost {
            refresh_token,
            verdict,
            at_ms: request.at_ms,
        });
    }

    fn granted(&self, index: usize) -> Answer {
        let seat = &self.seats[index];
        let pair = json!({
            "token_type": "Bearer",
            "access_token": seat.access_token,
            "expires_in": seat.token_lifetime_s,
            "refresh_token": seat.refresh_token,
            "scope": SCOPE,
            "organization": {"uuid": seat.organization_uuid, "name": seat.organization_name},
            "account": {"uuid": seat.account_uuid, "email_address": seat.email},
        });
        Answer::json(200, pair)
    }
}

#[derive(Deserialize)]
struct Grant {
    grant_type: String,
    #[serde(default)]
    refresh_token: String,
}

fn refused(code: &str, description: &str) -> Answer {
    Answer::json(400, json!({"error": code, "error_description": description}))
}
