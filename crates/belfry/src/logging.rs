//! What the processes of a server and a worker log: on standard error, never on standard output.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::settings::Settings;

/// Sets logging up for a process that stays; `info` where nothing is said.
///
/// # Errors
/// Where the filter cannot be understood.
pub(crate) fn install(settings: &Settings, default: &str) -> Result<(), Failure> {
    let level = settings.text("log.level").unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::builder().parse(&level).map_err(|error| {
        Failure::usage(format!("`{level}` says not what to log: {error}"))
            .help("expected `info`, `debug`, or filters as `server=debug`")
    })?;
    let terminal = std::io::stderr().is_terminal();
    let json = settings.text("log.format").as_deref() == Some("json");
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only where a logger is installed already; then that one logs.
    let _ = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())).try_init()
    };
    Ok(())
}
