//! Logging of servers and workers, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::settings::Settings;

/// Installs the logger of a long-running process. `default` is the log filter if none is configured.
///
/// # Errors
/// If the configured filter is invalid.
pub(crate) fn install(settings: &Settings, default: &str) -> Result<(), Failure> {
    let level = settings.text("log.level").unwrap_or_else(|| default.to_owned());
    // A server reports what happens in its cluster itself; openraft reports each request to a server that is away. A filter
    // of the user for it replaces this one.
    let filter = EnvFilter::builder().parse(format!("openraft=off,{level}")).map_err(|error| {
        Failure::usage(format!("invalid log filter `{level}`: {error}"))
            .help("expected `info`, `debug`, or filters by module such as `server=debug`")
    })?;
    let terminal = std::io::stderr().is_terminal();
    let json = settings.text("log.format").as_deref() == Some("json");
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only if a logger is already installed; then that one is used.
    let _ = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())).try_init()
    };
    Ok(())
}
