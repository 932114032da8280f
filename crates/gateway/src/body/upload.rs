//! The client's body: taken in, looked at, and sent on, as often as it must be.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::budget::Budget;
use super::drain::{DRAIN_KNOWN, drain};
use super::pieces::Pieces;
use crate::peek::{Found, Peek};

/// How long an upload may be silent: its device went to sleep, or lost its network.
const SILENCE: Duration = Duration::from_secs(60);

/// Why an upload did not become whole.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// It is longer than it may be.
    #[error("the body is too long")]
    TooLong,
    /// The client left.
    #[error("the client left")]
    ClientLeft,
}

/// The client's body: taken in piece by piece, looked at as it passes, and readable as often as it must be sent.
///
/// Its last piece is held back until the whole was seen, so that a body that turns out to belong elsewhere has not
/// run yet and can be taken back.
pub struct Upload {
    body: Body,
    length: Option<u64>,
    limit: Option<u64>,
    received: u64,
    complete: bool,
    peek: Option<Peek>,
    pieces: Arc<Pieces>,
}

/// How a sending went that ran alongside the taking in.
pub enum Sent<T> {
    /// It ended so.
    Ended(T),
    /// The whole body says that it should go elsewhere.
    Misdirected,
}

impl Upload {
    /// An upload of `length` bytes, if that is known, refused beyond `limit`. `peek` looks for what it is about.
    pub fn new(body: Body, length: Option<u64>, limit: Option<u64>, peek: bool, budget: Arc<Budget>) -> Self {
        let complete = body.is_end_stream();
        Self {
            body,
            length,
            limit,
            received: 0,
            complete,
            peek: peek.then(Peek::default),
            pieces: Arc::new(Pieces::new(budget, complete)),
        }
    }

    /// What was found in it so far.
    pub fn found(&self) -> Option<&Found> {
        self.peek.as_ref().map(Peek::found)
    }

    /// Whether it was taken in whole.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether it can be sent once more.
    pub fn is_replayable(&self) -> bool {
        self.pieces.is_replayable()
    }

    /// Takes it in until it is complete, `enough` was seen, or no more can be kept.
    ///
    /// # Errors
    /// If the client leaves, or sends more than it may.
    pub async fn take_in_until(&mut self, enough: impl Fn(&Found) -> bool) -> Result<(), UploadError> {
        while !self.complete && self.is_replayable() && !self.found().is_none_or(&enough) {
            self.step().await?;
        }
        Ok(())
    }

    /// The body to send, from its beginning.
    pub fn reader(&self) -> Body {
        if self.complete && self.received == 0 {
            return Body::empty();
        }
        Body::new(self.pieces.reader(self.length))
    }

    /// Runs `sending` while taking in the rest. Once the whole was seen, `still_right` decides whether it is going
    /// to the right place; if not, `sending` is dropped before it could complete.
    ///
    /// # Errors
    /// If the client leaves, or sends more than it may; `sending` is then dropped.
    pub async fn alongside<T>(
        &mut self,
        sending: impl Future<Output = T>,
        still_right: impl Fn(&Found) -> bool,
    ) -> Result<Sent<T>, UploadError> {
        let mut sending = std::pin::pin!(sending);
        while !self.complete {
            tokio::select! {
                biased;
                ended = &mut sending => return Ok(Sent::Ended(ended)),
                step = self.step() => step?,
            }
            if self.complete && self.is_replayable() && !self.found().is_none_or(&still_right) {
                return Ok(Sent::Misdirected);
            }
        }
        self.pieces.release();
        Ok(Sent::Ended(sending.await))
    }

    /// Takes in the rest in the background, for an answer that came before the upload's end: what is still being
    /// sent goes on, and what nobody reads is dropped, within bounds.
    pub fn finish_behind(mut self) {
        if self.complete || !self.pieces.is_read() {
            return drain(std::mem::take(&mut self.body), DRAIN_KNOWN);
        }
        tokio::spawn(async move {
            let taking_in = async {
                while !self.complete && self.received < DRAIN_KNOWN.bytes && self.step().await.is_ok() {}
                if self.complete {
                    self.pieces.release();
                }
            };
            let _ = tokio::time::timeout(DRAIN_KNOWN.time, taking_in).await;
        });
    }

    /// Takes in one more piece.
    async fn step(&mut self) -> Result<(), UploadError> {
        self.pieces.wait_for_room().await;
        let silent = tokio::time::timeout(SILENCE, self.body.frame());
        match silent.await.unwrap_or_else(|late| Some(Err(axum::Error::new(late)))) {
            None => self.complete = true,
            Some(Err(_)) => {
                self.pieces.break_off();
                return Err(UploadError::ClientLeft);
            }
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    self.received += piece.len() as u64;
                    if self.limit.is_some_and(|limit| self.received > limit) {
                        self.pieces.break_off();
                        return Err(UploadError::TooLong);
                    }
                    if let Some(peek) = &mut self.peek {
                        peek.look(&piece);
                    }
                    self.pieces.push(piece, self.received);
                }
                self.complete = self.body.is_end_stream();
            }
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.pieces.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::stream;

    use super::*;

    fn pieces(of: &[&'static str]) -> Body {
        let items: Vec<Result<Bytes, Infallible>> =
            of.iter().map(|text| Ok(Bytes::from_static(text.as_bytes()))).collect();
        Body::from_stream(stream::iter(items))
    }

    async fn read(body: Body) -> String {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    fn upload(body: Body, limit: Option<u64>, budget: &Arc<Budget>) -> Upload {
        Upload::new(body, None, limit, true, Arc::clone(budget))
    }

    #[tokio::test]
    async fn an_upload_can_be_sent_again_and_gives_its_memory_back() {
        let budget = Arc::new(Budget::default());
        let whole = budget.left();
        let mut upload = upload(pieces(&["{\"model\":", "\"m\"", "}"]), None, &budget);
        for _ in 0..2 {
            let reader = upload.reader();
            let Ok(Sent::Ended(sent)) = upload.alongside(read(reader), |_| true).await else {
                panic!("the upload did not become whole");
            };
            assert_eq!(sent, "{\"model\":\"m\"}");
        }
        assert_eq!(upload.found().unwrap().model.as_deref(), Some("m"));
        drop(upload);
        assert_eq!(budget.left(), whole);
    }

    #[tokio::test]
    async fn the_last_piece_waits_until_the_whole_was_seen() {
        let mut upload = upload(
            pieces(&["{\"model\":\"a\",", "\"model\":\"b\"}"]),
            None,
            &Arc::default(),
        );
        let reader = upload.reader();
        let sent = upload
            .alongside(read(reader), |found| found.model.as_deref() == Some("a"))
            .await;
        assert!(matches!(sent, Ok(Sent::Misdirected)));
        let reader = upload.reader();
        let Ok(Sent::Ended(sent)) = upload.alongside(read(reader), |_| true).await else {
            panic!("the upload did not become whole");
        };
        assert_eq!(sent, "{\"model\":\"a\",\"model\":\"b\"}");
    }

    #[tokio::test]
    async fn an_upload_over_its_limit_is_never_sent_whole() {
        let mut upload = upload(pieces(&["12345", "67890"]), Some(9), &Arc::default());
        let reader = upload.reader();
        assert!(matches!(
            upload.alongside(reader.collect(), |_| true).await,
            Err(UploadError::TooLong)
        ));
    }

    #[tokio::test]
    async fn an_upload_beyond_what_can_be_kept_streams_through_without_replay() {
        let budget = Arc::new(Budget::of(600_000));
        let piece = Bytes::from(vec![b'x'; 100_000]);
        let items: Vec<Result<Bytes, Infallible>> = (0..50).map(|_| Ok(piece.clone())).collect();
        let mut upload = upload(Body::from_stream(stream::iter(items)), None, &budget);
        let reader = upload.reader();
        let Ok(Sent::Ended(sent)) = upload.alongside(reader.collect(), |_| true).await else {
            panic!("the upload did not become whole");
        };
        assert_eq!(sent.unwrap().to_bytes().len(), 5_000_000);
        assert!(!upload.is_replayable());
        assert_eq!(budget.left(), 600_000, "what is not kept is not charged");
    }

    #[tokio::test]
    async fn a_reader_of_an_upload_that_was_dropped_half_way_fails() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let upload = upload(body, None, &Arc::default());
        let reader = upload.reader();
        drop(upload);
        assert!(reader.collect().await.is_err());
    }
}
