//! Which seat issued an id of a file, a batch or a container: a request that names one goes there.

use std::collections::{BTreeMap, VecDeque};

use pool::AccountId;
use serde_json::Value;

/// How many ids are remembered.
const REMEMBERED: usize = 10_000;

/// The owners of ids, the oldest forgotten first.
#[derive(Default)]
pub struct Owners {
    by_id: BTreeMap<String, AccountId>,
    order: VecDeque<String>,
}

impl Owners {
    /// The seat that issued the first of `ids` that is known.
    pub fn of<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> Option<AccountId> {
        ids.into_iter().find_map(|id| self.by_id.get(id)).cloned()
    }

    /// Notes that `account` issued `id`.
    pub fn note(&mut self, id: String, account: AccountId) {
        if self.by_id.insert(id.clone(), account).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }
}

/// The id of what the answer made: a file, a batch.
pub fn issued(answer: &[u8]) -> Vec<String> {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    answer["id"].as_str().map(str::to_owned).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ids_owner_is_remembered_and_the_oldest_forgotten() {
        let mut owners = Owners::default();
        for n in 0..=REMEMBERED {
            owners.note(format!("file_{n}"), AccountId::new("a"));
        }
        owners.note(format!("file_{REMEMBERED}"), AccountId::new("b"));
        assert_eq!(owners.of(&["file_0".to_owned()]), None);
        assert_eq!(
            owners.of(&["file_0".to_owned(), "file_1".to_owned()]),
            Some(AccountId::new("a"))
        );
        assert_eq!(owners.of(&[format!("file_{REMEMBERED}")]), Some(AccountId::new("b")));
    }

    #[test]
    fn an_answer_issues_its_own_id() {
        assert_eq!(issued(br#"{"id":"file_t1","type":"file"}"#), ["file_t1"]);
        assert_eq!(issued(b"no json"), [""; 0]);
    }
}
