//! What the owner wants of seats, written into the settings where a person would write it.

use std::sync::Arc;

use pool::AccountId;
use serde_json::{Value, json};

use super::Running;
use super::settings::put;
use crate::control::{CommandError, Reply};
use crate::roster::NotOne;
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
            let entry = entry_of(accounts(written)?, &id, |entry| roster.meant_by(entry));
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
                let entry = entry_of(accounts, id, |entry| roster.meant_by(entry));
                put(entry, "order", Value::from(place));
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

/// The entry of that seat alone, made if there is none. `meant_by` says which seats an entry is for.
fn entry_of<'a>(
    accounts: &'a mut Vec<Value>,
    id: &AccountId,
    meant_by: impl Fn(&Value) -> Vec<AccountId>,
) -> &'a mut Written {
    let known = accounts.iter().enumerate().find_map(|(place, entry)| {
        let meant = meant_by(entry);
        meant.contains(id).then_some((place, meant.len()))
    });
    let place = match known {
        Some((place, 1)) => place,
        // The others keep what it says; of two entries the first counts, so the copy goes before it.
        Some((shared, _)) => {
            let mut own = accounts[shared].clone();
            own["seat"] = id.as_str().into();
            accounts.insert(shared, own);
            shared
        }
        None => {
            accounts.push(json!({"seat": id.as_str()}));
            accounts.len() - 1
        }
    };
    match &mut accounts[place] {
        Value::Object(entry) => entry,
        _ => unreachable!("only an object means a seat, or was made one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seats under one e-mail address, and what means them.
    fn meant_by(entry: &Value) -> Vec<AccountId> {
        let both = ["me/one", "me/two"];
        let meant: &[&str] = match entry["seat"].as_str() {
            Some("me@example.com") => &both,
            Some("me/one") => &both[..1],
            Some("me/two") => &both[1..],
            _ => &[],
        };
        meant.iter().map(|id| AccountId::new(id)).collect()
    }

    #[test]
    fn a_wish_for_one_seat_leaves_the_others_of_a_shared_entry_as_they_were() {
        let shared = json!({"seat": "me@example.com", "reservePct": 10});
        let mut accounts = vec![json!({"seat": "gone"}), shared.clone()];
        for (id, key) in [("me/two", "enabled"), ("me/one", "draining"), ("me/two", "draining")] {
            put(entry_of(&mut accounts, &AccountId::new(id), meant_by), key, true.into());
        }
        let own = [
            json!({"seat": "me/two", "reservePct": 10, "enabled": true, "draining": true}),
            json!({"seat": "me/one", "reservePct": 10, "draining": true}),
        ];
        let [two, one] = own;
        assert_eq!(accounts, [json!({"seat": "gone"}), two, one, shared]);
    }

    #[test]
    fn an_entry_of_one_seat_is_changed_where_it_stands_and_a_missing_one_is_made() {
        let mut accounts = vec![json!({"seat": "me/one"}), json!("odd")];
        put(
            entry_of(&mut accounts, &AccountId::new("me/one"), meant_by),
            "limitPct",
            80.into(),
        );
        put(
            entry_of(&mut accounts, &AccountId::new("me/two"), meant_by),
            "limitPct",
            70.into(),
        );
        let want = [
            json!({"seat": "me/one", "limitPct": 80}),
            json!("odd"),
            json!({"seat": "me/two", "limitPct": 70}),
        ];
        assert_eq!(accounts, want);
    }
}
