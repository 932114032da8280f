//! What the owner wants of seats, written into the settings where a person would write it.

use std::sync::Arc;

use pool::AccountId;
use serde_json::{Value, json};

use super::Running;
use super::settings::put;
use crate::control::{CommandError, Reply};
use crate::roster::{NotOne, Roster};
use crate::settings::Written;

impl Running {
    /// The seat that goes by that name.
    pub(super) fn seat(&self, name: &str) -> Result<AccountId, CommandError> {
        self.gateway.proxy.roster.named(name).map_err(|not_one| match not_one {
            NotOne::None => {
                CommandError::new("unknownSeat", format!("no seat goes by `{name}`")).hint("`status` lists the seats")
            }
            NotOne::Several => CommandError::new("severalSeats", format!("several seats go by `{name}`"))
                .hint("`status --json` has the id of each"),
        })
    }

    /// The ids of the seats that go by those names.
    pub(super) fn seats(&self, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, CommandError> {
        let id = |name: &String| self.seat(name).map(|id| id.to_string());
        names.map(|names| names.iter().map(id).collect()).transpose()
    }

    /// Writes what the owner wants of one seat; null is what holds for all seats.
    pub(super) async fn wish<const N: usize>(&self, seat: &str, wishes: [(&'static str, Value); N]) -> Reply {
        let id = self.seat(seat)?;
        let roster = Arc::clone(&self.gateway.proxy.roster);
        self.change(move |written| {
            let entry = entry_of(accounts(written)?, &id, &roster);
            for (key, value) in wishes {
                put(entry, key, value);
            }
            Ok(())
        })
        .await
    }

    /// Writes the owner's order of the seats.
    pub(super) async fn order(&self, seats: &[String]) -> Reply {
        let ids = seats
            .iter()
            .map(|seat| self.seat(seat))
            .collect::<Result<Vec<_>, _>>()?;
        let roster = Arc::clone(&self.gateway.proxy.roster);
        self.change(move |written| {
            let accounts = accounts(written)?;
            for entry in accounts.iter_mut().filter_map(Value::as_object_mut) {
                put(entry, "order", Value::Null);
            }
            for (place, id) in (1..).zip(&ids) {
                put(entry_of(accounts, id, &roster), "order", Value::from(place));
            }
            Ok(())
        })
        .await
    }
}

/// The settings' `accounts`, made if there are none.
fn accounts(written: &mut Written) -> Result<&mut Vec<Value>, CommandError> {
    match written.entry("accounts").or_insert_with(|| json!([])) {
        Value::Array(accounts) => Ok(accounts),
        _ => Err(CommandError::new("badValue", "`accounts` is not a list")),
    }
}

/// The entry of that seat, made if there is none.
fn entry_of<'a>(accounts: &'a mut Vec<Value>, id: &AccountId, roster: &Roster) -> &'a mut Written {
    let known = accounts
        .iter()
        .position(|entry| entry.is_object() && roster.is_meant(id, entry));
    let place = known.unwrap_or(accounts.len());
    if known.is_none() {
        accounts.push(json!({"seat": id.as_str()}));
    }
    match &mut accounts[place] {
        Value::Object(entry) => entry,
        _ => unreachable!("it is an object, or was made one"),
    }
}
