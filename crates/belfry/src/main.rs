//! `belfry`, the one binary: server, worker, and the command line of both.
//!
//! ```text
//! args ──> commands ──> client ──> a server elsewhere
//!            │  └─────> output: data on stdout, all else on stderr
//!            └────────> server, worker: `belfry server`, `belfry worker`, `belfry dev`
//! ```
//!
//! - [`args`]: the command line as types, and its help texts.
//! - [`commands`]: what each command does.
//! - [`settings`] and [`connect`]: flag, else variable, else file, else default.
//! - [`output`]: tables, JSON and YAML, words, progress.
//! - [`failure`]: errors as they are shown, and the exit codes.
//!
//! `belfry supervisor` and `belfry fuse` are the processes of a worker that it starts itself. Their
//! arguments are the worker's own affair, so they are handed over before the command line is read.

mod args;
mod commands;
mod connect;
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

/// Millions of small rows live here for long, and threads hand them to each other: the C library's
/// allocator takes half as long again for it, and keeps more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let result = match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("supervisor") => commands::serve::supervisor(arguments),
        Some("fuse") => commands::serve::fuse(),
        _ => command_line(std::env::args_os().collect()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads any more, `head` for instance: that is no failure.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            show(&failure);
            failure.exit().code().into()
        }
    }
}

fn command_line(arguments: Vec<OsString>) -> Result<(), Failure> {
    client::install_crypto();
    // A line that cannot be read has no options yet.
    let plain = arguments.iter().any(|argument| argument == "--no-color");
    let color = if plain { clap::ColorChoice::Never } else { clap::ColorChoice::Auto };
    let parsed = Cli::command().color(color).try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // Help and version are data; both and usage errors print themselves with their exit code.
        Err(error) => error.exit(),
    };
    commands::run(cli)
}

fn show(failure: &Failure) {
    let color = output::Out::new(output::Format::Table, false, false).color_err;
    // Nothing can be done if nobody hears it.
    let _ = std::io::stderr().lock().write_all(failure.render(color).as_bytes());
}
