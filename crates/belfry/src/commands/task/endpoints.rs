//! `belfry task endpoints`: the endpoints of a service, once or as a file that follows them.

use std::path::Path;
use std::time::Duration;

use client::{Error, Task};
use model::api::Endpoint;

use super::Context;
use crate::args::task::EndpointsArgs;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, OutputOptions};

/// Time for which one request waits for a change.
const WAIT: Duration = Duration::from_secs(30);
/// Maximum time of the command that runs after a change.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay after a request that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn run(context: &Context, task: &Task, args: EndpointsArgs) -> Result<(), Failure> {
    let look = lines(context.out.fresh_look());
    if let Some(file) = args.file.as_deref().filter(|_| args.watch) {
        return follow(context, task, &args, &look, file).await;
    }
    let found = task.endpoints(&args.service, None, WAIT).await?;
    // Without a known version, the response has the endpoints.
    let found = found.ok_or_else(|| Failure::message(Exit::Failed, "the response has no endpoints"))?;
    let text = content(&look, found.endpoints, args.port.as_deref())?;
    match &args.file {
        Some(file) => replace(file, &text).map(drop),
        None => context.out.data(text),
    }
}

/// Keeps a file up to date. What may pass by itself, such as a full disk or a restart of the server, does not end it.
async fn follow(
    context: &Context,
    task: &Task,
    args: &EndpointsArgs,
    look: &OutputOptions,
    file: &Path,
) -> Result<(), Failure> {
    let mut known: Option<String> = None;
    loop {
        let next = match task.endpoints(&args.service, known.as_deref(), WAIT).await {
            Ok(Some(next)) => next,
            Ok(None) => continue,
            Err(error) if is_final(&error) => return Err(error.into()),
            Err(error) => {
                context.out.warn(format!("cannot read the endpoints of service {}: {error}", args.service));
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let text = content(look, next.endpoints, args.port.as_deref())?;
        match replace(file, &text) {
            Ok(is_changed) => {
                known = Some(next.version);
                if is_changed {
                    run_command(context, &args.command).await;
                }
            }
            Err(failure) => {
                context.out.error_data(failure.render(context.out.color_err))?;
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Whether another attempt fails too: the job has another execution, or does not require the service.
fn is_final(error: &Error) -> bool {
    matches!(error.code(), Some("not_current" | "service_not_required" | "not_supported" | "invalid_request"))
}

/// Returns the formatting options for a file: one `HOST:PORT` on each line instead of a table.
fn lines(look: OutputOptions) -> OutputOptions {
    match look.format {
        Format::Table | Format::Wide => OutputOptions { format: Format::Name, ..look },
        _ => look,
    }
}

/// Formats the endpoints of a port. Without an address of its worker, a program cannot use an endpoint.
fn content(look: &OutputOptions, endpoints: Vec<Endpoint>, port: Option<&str>) -> Result<String, Failure> {
    let is_wanted = |one: &Endpoint| one.address.is_some() && port.is_none_or(|port| one.port_name == port);
    let wanted: Vec<_> = endpoints.into_iter().filter(is_wanted).collect();
    output::list(look, &wanted)
}

/// Replaces the content of a file at once, if it differs. Returns whether it did.
fn replace(file: &Path, text: &str) -> Result<bool, Failure> {
    if std::fs::read(file).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(false);
    }
    let failed = |error: std::io::Error| {
        Failure::message(Exit::Failed, format!("cannot write `{}`: {error}", file.display()))
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    let replaced = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
    if replaced.is_err() {
        // The error of the write is the one to report.
        std::fs::remove_file(&new).ok();
    }
    replaced.map_err(failed)?;
    Ok(true)
}

async fn run_command(context: &Context, command: &[String]) {
    let Some((program, arguments)) = command.split_first() else { return };
    let run = tokio::process::Command::new(program).args(arguments).kill_on_drop(true).status();
    let Ok(status) = tokio::time::timeout(COMMAND_TIMEOUT, run).await else {
        return context.out.warn(format!("command `{program}` was killed: it took longer than one minute"));
    };
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => context.out.warn(format!("command `{program}` failed: {status}")),
        Err(error) => context.out.warn(format!("cannot run command `{program}`: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use model::{JobId, WorkerId};

    use super::*;

    fn endpoint(port_name: &str, address: Option<&str>, port: u16) -> Endpoint {
        Endpoint {
            port_name: port_name.into(),
            address: address.map(str::to_owned),
            port,
            replica: 0,
            revision: 1,
            job: JobId::from_bits(1),
            worker: WorkerId::from_bits(1),
        }
    }

    #[test]
    fn the_file_has_one_address_on_each_line() {
        let look = OutputOptions {
            format: Format::Table,
            color: false,
            now: model::Timestamp::default(),
            width: None,
        };
        let all = || {
            let other = endpoint("admin", Some("10.0.0.1"), 9000);
            vec![endpoint("http", Some("10.0.0.1"), 8080), other, endpoint("http", None, 8081)]
        };
        let of = |port| content(&lines(look), all(), port).ok();
        assert_eq!(of(Some("http")).as_deref(), Some("10.0.0.1:8080\n"));
        assert_eq!(of(None).as_deref(), Some("10.0.0.1:8080\n10.0.0.1:9000\n"));
        assert_eq!(of(Some("grpc")).as_deref(), Some(""));
    }

    #[test]
    fn a_file_is_replaced_only_if_its_content_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("upstreams");
        let replaced = |text| replace(&file, text).ok();
        assert_eq!(
            [replaced("a\n"), replaced("a\n"), replaced("b\n")],
            [Some(true), Some(false), Some(true)]
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "b\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
        assert!(replace(&folder.path().join("missing/upstreams"), "a").is_err());
    }
}
