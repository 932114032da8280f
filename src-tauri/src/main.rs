//! The menu-bar app's executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    app::run()
}
