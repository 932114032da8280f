//! How full the windows were over time, a line where it is news.

use std::collections::BTreeMap;

use pool::{AccountId, SeatMemory, WindowKind};
use rusqlite::{Connection, params};

/// A reading is written down again when it differs by so many basis points, or is so many milliseconds old.
const NOTABLE_BP: u16 = 10;
const NOTABLE_MS: i64 = 15 * 60 * 1_000;

/// The last reading of each window that was written down: how full it was, in basis points, and when that was, in
/// milliseconds since the epoch.
pub(super) type Noted = BTreeMap<(AccountId, WindowKind), (u16, i64)>;

/// Writes down how full the windows are, where that is news.
pub(super) fn write_usage(
    db: &Connection,
    seat: &SeatMemory,
    known: &Noted,
    noted: &mut Noted,
) -> rusqlite::Result<()> {
    for (kind, window) in &seat.windows {
        let (used, at) = (window.used.basis_points(), window.observed_at.as_millisecond());
        let key = (seat.id.clone(), kind.clone());
        let is_news = known
            .get(&key)
            .is_none_or(|&(last, then)| at > then && (used.abs_diff(last) >= NOTABLE_BP || at - then >= NOTABLE_MS));
        if is_news {
            db.prepare_cached("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)")?
                .execute(params![seat.id.as_str(), kind.word(), at, used])?;
            noted.insert(key, (used, at));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::History;
    use super::super::given::{at, memory_of, of_seats, opened};
    use super::*;

    #[test]
    fn usage_is_written_down_where_it_is_news() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(folder.path());
        for (used, second) in [(100, 0), (105, 60), (110, 120), (110, 180), (110, 1_200)] {
            let mut seat = memory_of("a", used, second);
            seat.windows.truncate(1);
            store.write(&of_seats(&[seat]), true).unwrap();
        }
        let history = History::open(&folder.path().join("router.db")).unwrap();
        let points: Vec<_> = history
            .usage(&AccountId::new("a"), at(0))
            .unwrap()
            .into_iter()
            .map(|(ms, _, used)| (ms / 1_000, used))
            .collect();
        assert_eq!(points, [(0, 100), (120, 110), (1_200, 110)]);
    }
}
