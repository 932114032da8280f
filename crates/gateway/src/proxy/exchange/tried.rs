//! The seats that a request has tried, and why none of them served it.

use pool::{AccountId, Outcome};

/// Why a seat did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A limit: it may be tried anew when that has passed.
    Limit,
    /// It serves beyond its plan, which its owner pays for where nobody else does.
    Price,
    /// Something else: its login, its organisation, its plan.
    Other,
}

/// The seats that a request has tried.
#[derive(Debug, Default)]
pub(super) struct Tried(Vec<(AccountId, Why)>);

impl Tried {
    /// Notes that `seat` could not be asked.
    pub(super) fn passed_over(&mut self, seat: &AccountId) {
        self.0.push((seat.clone(), Why::Other));
    }

    /// Notes that `seat` gave that `outcome`.
    pub(super) fn gave(&mut self, seat: &AccountId, outcome: &Outcome) {
        let why = match outcome {
            Outcome::Limited(_) => Why::Limit,
            Outcome::Beyond(_) => Why::Price,
            _ => Why::Other,
        };
        self.0.push((seat.clone(), why));
    }

    /// All of them.
    pub(super) fn seats(&self) -> Vec<AccountId> {
        self.0.iter().map(|(seat, _)| seat.clone()).collect()
    }

    /// Lets those be tried again that were left because of what they cost. Returns whether there are any.
    pub(super) fn allow_paid(&mut self) -> bool {
        self.allow(Why::Price)
    }

    /// Lets those be tried again that were at a limit.
    pub(super) fn allow_limited(&mut self) {
        self.allow(Why::Limit);
    }

    fn allow(&mut self, what: Why) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, why)| *why != what);
        self.0.len() < before
    }
}
