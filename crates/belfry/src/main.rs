//! The `belfry` binary: server, worker and command line.
//!
//! ```text
//! args ──> commands ──> client ──> REST API of a server
//!            │  └─────> output: data on stdout, everything else on stderr
//!            └────────> server, worker: `belfry server`, `belfry worker`, `belfry dev`
//! ```
//!
//! - [`args`]: the command line as types, and its help texts.
//! - [`commands`]: implementation of the commands.
//! - [`settings`]: settings from options, environment variables, a file and defaults.
//! - [`connect`]: selection of the server and the token; [`contexts`]: named servers of a user.
//! - [`output`]: tables, JSON, YAML and progress.
//! - [`failure`]: rendering of errors, and exit codes.
//! - [`logging`]: logs of servers and workers.
//!
//! `belfry supervisor`, `belfry fuse` and `belfry shim` are internal processes of a worker, which starts
//! them itself. Their arguments are private to it, so they are dispatched before the command line is parsed.

mod args;
mod commands;
mod connect;
mod contexts;
mod failure;
mod logging;
mod output;
mod settings;

#[cfg(test)]
mod book;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::Cli;
use crate::failure::Failure;

/// A server keeps millions of small rows that move between threads. For this load the allocator of the C library takes
/// 1.5 times as long and keeps more memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let result = match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("supervisor") => commands::serve::supervisor(arguments),
        Some("fuse") => commands::serve::fuse(),
        Some("shim") => return runtimes::run_shim(arguments),
        _ => command_line(std::env::args_os().collect()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // A closed pipe (`belfry job list | head`) is not a failure.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            show(&failure);
            failure.exit().code().into()
        }
    }
}

fn command_line(arguments: Vec<OsString>) -> Result<(), Failure> {
    client::install_crypto();
    // Needed before parsing: errors of the parser have colors too.
    let plain = arguments.iter().any(|argument| argument == "--no-color");
    let color = if plain { clap::ColorChoice::Never } else { clap::ColorChoice::Auto };
    let command = Cli::command().color(color);
    let parsed = command.clone().try_get_matches_from(&arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let words: Vec<_> =
                arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            // `exit` prints help, version or the usage error, with the matching exit code.
            args::hints::explain(error, &command, &words).exit()
        }
    };
    commands::run(cli)
}

fn show(failure: &Failure) {
    let color = output::Output::new(output::Format::Table, false, false).color_err;
    // A closed standard error is not a failure of the command.
    let _ = std::io::stderr().lock().write_all(failure.render(color).as_bytes());
}
