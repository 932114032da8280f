//! Whether the router answers at its own door, asked every half minute: what the icon shows is what was found, not what
//! is believed.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gateway::snapshot::Snapshot;

const BETWEEN: Duration = Duration::from_secs(30);
/// How long an answer may take: a busy machine is slow, and this one has nothing to do.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many silences in a row are one: a machine that just woke has other things to do.
const SILENCES: u32 = 2;

/// What was found last.
#[derive(Clone)]
pub struct Pulse(Arc<AtomicBool>);

impl Pulse {
    /// Asks from now on, at the first address of what `look` shows. `changed` hears when the answer is another one.
    pub fn begin(look: impl Fn() -> Option<Snapshot> + Send + 'static, changed: impl Fn() + Send + 'static) -> Self {
        let pulse = Self(Arc::new(AtomicBool::new(true)));
        let found = Arc::clone(&pulse.0);
        let begun = thread::Builder::new().name("pulse".into()).spawn(move || {
            let (_never, wait) = mpsc::channel::<()>();
            let mut silences = 0;
            while wait.recv_timeout(BETWEEN) == Err(mpsc::RecvTimeoutError::Timeout) {
                let address = look().and_then(|snapshot| snapshot.listening.first()?.parse().ok());
                silences = match address.map(ping) {
                    // Nothing to ask is said elsewhere.
                    None | Some(Ok(())) => 0,
                    Some(Err(error)) => {
                        tracing::warn!("the router does not answer itself: {error}");
                        silences + 1
                    }
                };
                let beats = silences < SILENCES;
                if found.swap(beats, Ordering::Relaxed) != beats {
                    changed();
                }
            }
        });
        if let Err(error) = begun {
            tracing::warn!("whether the router answers is not asked: {error}");
        }
        pulse
    }

    /// Whether it answered.
    pub fn beats(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Asks for a ping, which wants no key.
fn ping(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /_router/ping HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    match &head == b"HTTP/1.1 200" {
        true => Ok(()),
        false => Err(io::Error::other("the answer was not a ping's")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A listener that says that to whoever comes.
    fn says(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    #[test]
    fn gu_04_a_ping_is_believed_and_nothing_else_is() {
        assert!(ping(says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).is_ok());
        assert!(ping(says("HTTP/1.1 502 Bad Gateway\r\n\r\n")).is_err());
        assert!(ping(says("")).is_err());
        let gone = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        assert!(ping(gone).is_err());
    }
}
