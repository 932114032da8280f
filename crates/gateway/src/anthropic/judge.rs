//! What an answer means: by its status, its limits, and where those are not enough by its words.

use http::StatusCode;
use http::header::{self, HeaderMap};
use pool::{Feature, Outcome};
use serde::Deserialize;

use super::limits::Limits;

/// The error that a body tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ErrorBody {
    /// `rate_limit_error`, `authentication_error`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The sentence.
    #[serde(default)]
    pub message: String,
}

impl ErrorBody {
    /// The error in `body`; `None` if it is not Anthropic's error shape.
    pub fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Outer {
            error: ErrorBody,
        }
        serde_json::from_slice(body).ok().map(|Outer { error }| error)
    }
}

/// Whether an answer's body decides what the answer means.
pub fn wants_body(status: StatusCode, limits: &Limits) -> bool {
    match status.as_u16() {
        400 | 401 | 403 | 404 => true,
        429 => limits.rejection().is_none_or(|rejection| rejection.windows.is_empty()),
        _ => false,
    }
}

/// What an answer means, from its head and, where it was read, its error.
pub fn judge(status: StatusCode, headers: &HeaderMap, limits: &Limits, error: Option<&ErrorBody>) -> Outcome {
    if is_challenge(status, headers) {
        return Outcome::Challenged;
    }
    let lacks = || error.and_then(ErrorBody::lacks).map(Outcome::Lacks);
    let says = |what: fn(&ErrorBody) -> bool| error.is_some_and(what);
    match status.as_u16() {
        200..=299 if limits.is_rejected() => Outcome::Beyond(limits.rejection().unwrap_or_default()),
        200..=299 => Outcome::Served,
        400 if says(ErrorBody::is_about_the_organization) => Outcome::NotAllowed,
        400 => lacks().unwrap_or(Outcome::PassedOn),
        401 if says(ErrorBody::is_oauth_unsupported) => Outcome::OauthUnsupported,
        401 => Outcome::Unauthorized,
        402 => Outcome::Unpaid,
        403 if says(ErrorBody::is_revoked) => Outcome::Unauthorized,
        403 if says(ErrorBody::is_about_the_organization) => Outcome::NotAllowed,
        403 if says(ErrorBody::is_about_the_place) => Outcome::WrongPlace,
        403 if says(ErrorBody::is_about_a_model) => Outcome::NoSuchModelHere,
        404 if says(ErrorBody::is_about_a_model) => Outcome::UnknownModel,
        408 | 409 | 425 => Outcome::Unlucky,
        429 => match limits.rejection() {
            Some(rejection) if !rejection.windows.is_empty() => Outcome::Limited(rejection),
            _ if limits.is_about_extra_usage() => Outcome::NoCredits,
            rejection => lacks().or(rejection.map(Outcome::Limited)).unwrap_or_else(|| {
                match limits.out_of_credits || says(ErrorBody::is_about_credits) {
                    true => Outcome::NoCredits,
                    false => Outcome::Throttled,
                }
            }),
        },
        503 | 529 => Outcome::Overloaded,
        504 | 524 => Outcome::TimedOut,
        500..=599 => Outcome::Faulty,
        _ => Outcome::PassedOn,
    }
}

/// A page of the network in front of Anthropic, which wants to see a person.
fn is_challenge(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = || headers.get(header::CONTENT_TYPE)?.to_str().ok();
    let is_page = || kind().is_some_and(|kind| kind.starts_with("text/html"));
    match status.as_u16() {
        403 => headers.contains_key("cf-mitigated") || is_page(),
        503 => headers.contains_key("cf-mitigated"),
        _ => false,
    }
}

/// What Anthropic's sentences tell; they are looked at here and nowhere else.
impl ErrorBody {
    fn says(&self, any: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        any.iter().any(|words| message.contains(words))
    }

    /// The answer to a request without the OAuth beta value; no seat is at fault.
    fn is_oauth_unsupported(&self) -> bool {
        self.says(&["oauth authentication is currently not supported"])
    }

    /// A token that was taken back, told as a 403.
    fn is_revoked(&self) -> bool {
        self.says(&["token has been revoked"])
    }

    /// An organisation that is switched off, or does not let its logins be used so.
    fn is_about_the_organization(&self) -> bool {
        self.says(&["organization"]) && self.says(&["disabled", "not allowed", "not permitted"])
    }

    /// A place or a network that is not served.
    fn is_about_the_place(&self) -> bool {
        self.kind == "forbidden" || self.says(&["request not allowed"])
    }

    fn is_about_a_model(&self) -> bool {
        self.says(&["model"])
    }

    /// Nothing pays for what goes beyond the plan.
    fn is_about_credits(&self) -> bool {
        self.says(&["extra usage", "out of credits", "credit balance"])
    }

    /// The feature that the plan lacks, if that is what it says.
    fn lacks(&self) -> Option<Feature> {
        let feature = match () {
            () if self.says(&["long context"]) => Feature::LongContext,
            () if self.says(&["fast mode"]) => Feature::FastMode,
            () => return None,
        };
        let missing = [
            "available",
            "subscription",
            "plan",
            "extra usage",
            "enabled",
            "required",
        ];
        self.says(&missing).then_some(feature)
    }
}

#[cfg(test)]
mod tests {
    use super::super::given::headers;
    use super::*;

    #[test]
    fn what_an_answer_means_is_told_by_its_status_and_where_that_is_not_enough_by_its_words() {
        use Outcome as O;
        let error = |kind: &str, message: &str| ErrorBody {
            kind: kind.into(),
            message: message.into(),
        };
        let judged = |status: u16, error: Option<&ErrorBody>| {
            let status = StatusCode::from_u16(status).unwrap();
            judge(status, &HeaderMap::new(), &Limits::default(), error)
        };
        for (status, want) in [
            (200, O::Served),
            (204, O::Served),
            (302, O::PassedOn),
            (400, O::PassedOn),
            (401, O::Unauthorized),
            (402, O::Unpaid),
            (403, O::PassedOn),
            (404, O::PassedOn),
            (408, O::Unlucky),
            (409, O::Unlucky),
            (413, O::PassedOn),
            (422, O::PassedOn),
            (425, O::Unlucky),
            (429, O::Throttled),
            (500, O::Faulty),
            (502, O::Faulty),
            (503, O::Overloaded),
            (504, O::TimedOut),
            (520, O::Faulty),
            (524, O::TimedOut),
            (529, O::Overloaded),
        ] {
            assert_eq!(judged(status, None), want, "{status} without words");
        }
        let long = Feature::LongContext;
        for (status, kind, message, want) in [
            (
                400,
                "invalid_request_error",
                "The long context beta is not yet available for this subscription.",
                O::Lacks(long),
            ),
            (
                429,
                "rate_limit_error",
                "Extra usage is required for long context requests.",
                O::Lacks(long),
            ),
            (
                429,
                "rate_limit_error",
                "Fast mode is not enabled for your plan",
                O::Lacks(Feature::FastMode),
            ),
            (429, "rate_limit_error", "You're out of extra usage", O::NoCredits),
            (429, "rate_limit_error", "Error", O::Throttled),
            (
                400,
                "invalid_request_error",
                "prompt is too long: 300000 tokens > 200000 maximum",
                O::PassedOn,
            ),
            (
                400,
                "invalid_request_error",
                "This organization has been disabled.",
                O::NotAllowed,
            ),
            (
                403,
                "permission_error",
                "OAuth authentication is currently not allowed for this organization.",
                O::NotAllowed,
            ),
            (
                403,
                "permission_error",
                "OAuth token has been revoked. Please obtain a new token.",
                O::Unauthorized,
            ),
            (403, "forbidden", "Request not allowed", O::WrongPlace),
            (
                403,
                "permission_error",
                "Your account does not have access to this model.",
                O::NoSuchModelHere,
            ),
            (403, "permission_error", "No", O::PassedOn),
            (404, "not_found_error", "model: claude-opus-9", O::UnknownModel),
            (404, "not_found_error", "Not found: file_t1", O::PassedOn),
            (
                401,
                "authentication_error",
                "OAuth authentication is currently not supported.",
                O::OauthUnsupported,
            ),
        ] {
            assert_eq!(judged(status, Some(&error(kind, message))), want, "{status} {message}");
        }
        let page = headers(&[("content-type", "text/html; charset=UTF-8")]);
        let challenge = headers(&[("content-type", "text/html"), ("cf-mitigated", "challenge")]);
        for (status, headers, want) in [
            (403, &page, O::Challenged),
            (503, &challenge, O::Challenged),
            (503, &page, O::Overloaded),
            (520, &page, O::Faulty),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, headers, &Limits::default(), None), want, "{status}");
        }
        let limits = headers(&[
            ("anthropic-ratelimit-unified-status", "rejected"),
            ("anthropic-ratelimit-unified-5h-status", "rejected"),
            ("anthropic-ratelimit-unified-5h-reset", "600"),
        ]);
        let limits = Limits::read(&limits, None);
        let rejected = limits.rejection().unwrap();
        for (status, want) in [(200, O::Beyond(rejected.clone())), (429, O::Limited(rejected))] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, &HeaderMap::new(), &limits, None), want);
        }
    }

    #[test]
    fn extra_usage_that_is_refused_is_no_limit_of_a_plan_with_room() {
        let limits = |five_hours: &'static str| {
            let headers = headers(&[
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-representative-claim", "overage"),
                ("anthropic-ratelimit-unified-reset", "518400"),
                ("anthropic-ratelimit-unified-7d-status", "allowed"),
                ("anthropic-ratelimit-unified-5h-status", five_hours),
            ]);
            Limits::read(&headers, None)
        };
        let judged = |limits: &Limits| judge(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), limits, None);
        assert_eq!(judged(&limits("allowed")), Outcome::NoCredits);
        assert!(matches!(judged(&limits("rejected")), Outcome::Limited(_)));
    }
}
