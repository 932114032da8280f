//! The app's own door: a socket on which a second copy asks the first one to show itself.
//!
//! It is apart from the router's control socket because the app must be reachable when its router does not run.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// What is asked, and what is answered.
const OPEN: &[u8; 5] = b"open\n";
const OPENED: &[u8; 3] = b"ok\n";
/// How long a copy may take to ask, or to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens the door at `path`; `asked` is called for each copy that knocks. Call it under the app's lock: a socket that
/// is there already is a dead one.
///
/// # Errors
/// If the socket or its thread cannot be had.
pub fn open(path: &Path, asked: impl Fn() + Send + 'static) -> io::Result<()> {
    let listener = gateway::control::bind(path)?;
    thread::Builder::new().name("door".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            if answer(stream).is_ok() {
                asked();
            }
        }
    })?;
    Ok(())
}

fn answer(mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = [0; OPEN.len()];
    stream.read_exact(&mut said)?;
    if said != *OPEN {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(OPENED)
}

/// Asks the copy behind the door at `path` to show itself. Returns whether one is there.
pub fn knock(path: &Path) -> bool {
    let ask = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(OPEN)?;
        let mut said = [0; OPENED.len()];
        stream.read_exact(&mut said)?;
        io::Result::Ok(said == *OPENED)
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_knock_is_heard_and_a_door_without_a_house_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/app.sock");
        assert!(!knock(&path));
        let (asked, was_asked) = mpsc::channel();
        open(&path, move || asked.send(()).unwrap()).unwrap();
        assert!(knock(&path));
        was_asked.recv_timeout(PATIENCE).unwrap();
        // Whoever says something else is let go, and the door stays open.
        let mut stranger = UnixStream::connect(&path).unwrap();
        stranger.write_all(b"shut\n").unwrap();
        assert_eq!(stranger.read(&mut [0; 3]).unwrap(), 0);
        assert!(knock(&path));

        let dead = folder.path().join("run/dead.sock");
        drop(UnixListener::bind(&dead).unwrap());
        assert!(!knock(&dead));
    }
}
