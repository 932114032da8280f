//! Runs macOS's `security`, the one program that the Keychain lets at Claude Code's items without asking.
//!
//! One at a time for the whole process, each within a time limit, and its whole process group ends with it: a run that
//! does not end is a dialog that nobody answers. A secret goes in by standard input and comes out by standard output,
//! never on the command line; what the tool says on standard error is thrown away, for it may quote the secret.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a read may take.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// How long a write may take.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// The tool's buffer for one line of its standard input. Of a longer line it runs the beginning, and prints the rest.
const LINE_BUFFER: usize = 4_096;
/// An item holds a few kilobytes.
const OUTPUT: u64 = 2 << 20;
/// "The specified item could not be found."
const NOT_FOUND: i32 = 44;
/// "User interaction is not allowed": the Keychain is locked, or nobody sits before it.
const LOCKED: i32 = 36;
/// The dialog was cancelled, or the login keychain's password was wrong.
const REFUSED: [i32; 2] = [128, 51];

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with that status; none if a signal ended it.
    With(Option<i32>),
    /// By us, when its time was over.
    Late,
}

impl Ended {
    /// Whether the owner was asked, and did not answer in time or said no.
    pub fn is_a_refusal(&self) -> bool {
        match self {
            Self::Late => true,
            Self::With(status) => status.is_some_and(|status| REFUSED.contains(&status)),
        }
    }
}

/// Something that runs `security`.
pub trait Tool: Send + Sync {
    /// Runs it with those arguments and that input, and returns how it ended and what it printed.
    ///
    /// # Errors
    /// If it cannot be started.
    fn run(&self, arguments: &[&str], input: &[u8], limit: Duration) -> io::Result<(Ended, Vec<u8>)>;
}

/// The program itself.
#[derive(Debug)]
pub struct Security {
    program: PathBuf,
    one: Mutex<()>,
}

impl Security {
    /// The program at that absolute path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            one: Mutex::default(),
        }
    }
}

impl Tool for Security {
    fn run(&self, arguments: &[&str], input: &[u8], limit: Duration) -> io::Result<(Ended, Vec<u8>)> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // At most a line, which fits a pipe; and a tool that ends early does not want it.
            let _ = stdin.write_all(input);
        }
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (send, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut output = Vec::new();
            if let Some(stdout) = child.stdout.take() {
                let _ = stdout.take(OUTPUT).read_to_end(&mut output);
            }
            let status = child.wait().ok().and_then(|status| status.code());
            let _ = send.send((Ended::With(status), output));
        });
        if let Ok(ended) = ended.recv_timeout(limit) {
            return Ok(ended);
        }
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Until it is gone, what it was doing may still happen.
        let _ = ended.recv_timeout(limit);
        Ok((Ended::Late, Vec::new()))
    }
}

/// What came of asking for an item's secret.
pub enum Found {
    /// Its bytes.
    Value(Vec<u8>),
    /// There is no such item.
    Absent,
    /// The Keychain is locked.
    Locked,
    /// The owner was asked, and did not answer in time or said no.
    Refused,
    /// The tool failed, with that status.
    Failed(Option<i32>),
}

/// Asks for the secret of the item of that service and account.
///
/// # Errors
/// If the tool cannot be started.
pub fn find(tool: &dyn Tool, service: &str, account: &str) -> io::Result<Found> {
    let arguments = ["find-generic-password", "-a", account, "-w", "-s", service];
    let (ended, output) = tool.run(&arguments, &[], READ_LIMIT)?;
    Ok(match ended {
        Ended::With(Some(0)) => Found::Value(value(output)),
        Ended::With(Some(NOT_FOUND)) => Found::Absent,
        Ended::With(Some(LOCKED)) => Found::Locked,
        Ended::With(status) if !ended.is_a_refusal() => Found::Failed(status),
        Ended::With(_) | Ended::Late => Found::Refused,
    })
}

/// The secret in what the tool printed: as it is, or in hex where a byte of it is not printable.
fn value(mut output: Vec<u8>) -> Vec<u8> {
    if output.last() == Some(&b'\n') {
        output.pop();
    }
    from_hex(&output).unwrap_or(output)
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair.first()?)? * 16 + digit(pair.get(1)?)?) as u8);
    (!text.is_empty()).then(|| text.chunks(2).map(pair).collect())?
}

/// The line that puts `secret` into the item of that service and account; `None` where the tool would not read it whole.
pub fn line(service: &str, account: &str, secret: &[u8]) -> Option<String> {
    use std::fmt::Write as _;
    let mut line = format!("add-generic-password -U -a \"{account}\" -s \"{service}\" -X \"");
    for byte in secret {
        let _ = write!(line, "{byte:02x}");
    }
    line.push_str("\"\n");
    (line.len() < LINE_BUFFER).then_some(line)
}

/// Has the tool carry out a [`line`]. Its answer says little: read the item to see what it did.
///
/// # Errors
/// If the tool cannot be started.
pub fn write(tool: &dyn Tool, line: &str) -> io::Result<Ended> {
    Ok(tool.run(&["-i"], line.as_bytes(), WRITE_LIMIT)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_01_plain_and_hex_are_both_understood() {
        for (printed, want) in [
            ("{\"a\":1}\n", "{\"a\":1}"),
            ("{\"a\":1}", "{\"a\":1}"),
            ("7b2261223a22c3a9227d0a\n", "{\"a\":\"é\"}\n"),
            ("7B7D\n", "{}"),
            ("\n", ""),
            ("{\"b\":2\n}\n", "{\"b\":2\n}"),
        ] {
            assert_eq!(value(printed.into()), want.as_bytes(), "{printed:?}");
        }
    }

    #[test]
    fn a_line_that_the_tool_would_cut_is_not_made() {
        let frame = line("Claude Code-credentials", "me", b"").unwrap().len();
        let room = (LINE_BUFFER - 1 - frame) / 2;
        let longest = line("Claude Code-credentials", "me", &vec![b'x'; room]).unwrap();
        assert!(longest.len() < 4_096 && longest.len() > 4_092, "{}", longest.len());
        assert_eq!(line("Claude Code-credentials", "me", &vec![b'x'; room + 1]), None);
    }
}
