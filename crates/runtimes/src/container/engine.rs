//! The container engine of this machine.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bollard::errors::Error;
use bollard::models::SystemInfoCgroupDriverEnum;
use bollard::{API_DEFAULT_VERSION, Docker};
use model::ExecutionId;

use super::groups;

/// Seconds in which the engine must begin to answer: for an execution, and for a probe.
pub(super) const TIMEOUT: u64 = 120;
pub(super) const PROBE_TIMEOUT: u64 = 8;
/// Address for "no engine".
const NONE: &str = "none";

/// Connects to the engine at `address`, as `unix:///PATH` or `/PATH`; without an address, to the first one of this machine.
///
/// # Errors
/// One sentence: why no engine can be used.
pub(super) async fn connect(address: Option<&str>, timeout: u64) -> Result<Docker, String> {
    let socket = match address {
        Some(NONE) => return Err("containers are disabled by the setting `worker.container_engine`".into()),
        Some(address) => socket_of(address)?,
        None => found().ok_or(
            "no container engine was found: install Docker or Podman, or set `worker.container_engine`",
        )?,
    };
    check_owner(&socket)?;
    let path = socket.display().to_string();
    let engine = Docker::connect_with_unix(&path, timeout, API_DEFAULT_VERSION);
    let engine = match engine {
        Ok(engine) => engine.negotiate_version().await,
        Err(error) => Err(error),
    };
    engine.map_err(|error| format!("the container engine at `{path}` does not answer: {}", reason(&error)))
}

/// Returns who creates the control groups of containers.
///
/// # Errors
/// One sentence: the engine does not answer, or creates no control groups, so that the processes of its containers cannot be
/// found.
pub(super) async fn cgroup_driver(engine: &Docker) -> Result<SystemInfoCgroupDriverEnum, String> {
    let info = engine.info().await;
    let info = info.map_err(|error| format!("the container engine does not answer: {}", reason(&error)))?;
    info.cgroup_driver.filter(|driver| groups::parent(Some(*driver), ExecutionId::from_bits(0)).is_some()).ok_or_else(|| {
        "the container engine creates no control groups, so that the worker cannot find the processes of containers".into()
    })
}

/// Returns the name and the version of the engine.
///
/// # Errors
/// One sentence: why it does not answer.
pub(super) async fn describe(engine: &Docker) -> Result<String, String> {
    let version = engine.version().await;
    let version =
        version.map_err(|error| format!("the container engine does not answer: {}", reason(&error)))?;
    let is_podman = version.components.unwrap_or_default().iter().any(|part| part.name.starts_with("Podman"));
    let name = if is_podman { "podman" } else { "docker" };
    Ok(format!("{name} {}", version.version.unwrap_or_default()).trim().to_owned())
}

fn socket_of(address: &str) -> Result<PathBuf, String> {
    let path = address.strip_prefix("unix://").unwrap_or(address);
    if !path.starts_with('/') {
        return Err(format!(
            "`{address}` is not the socket of a container engine on this machine: expected `unix:///PATH`"
        ));
    }
    Ok(path.into())
}

/// Returns the first socket of a known engine that exists.
fn found() -> Option<PathBuf> {
    let user = format!("/run/user/{}", rustix::process::geteuid().as_raw());
    let sockets = [
        "/var/run/docker.sock".to_owned(),
        "/run/podman/podman.sock".to_owned(),
        format!("{user}/docker.sock"),
        format!("{user}/podman/podman.sock"),
    ];
    sockets.into_iter().map(PathBuf::from).find(|path| path.exists() && check_owner(path).is_ok())
}

/// Checks that this user may signal processes of containers: it is root, or the engine belongs to it.
fn check_owner(socket: &Path) -> Result<(), String> {
    let own = rustix::process::geteuid();
    let meta = std::fs::metadata(socket)
        .map_err(|error| format!("cannot use the container engine at `{}`: {error}", socket.display()))?;
    if own.is_root() || meta.uid() == own.as_raw() {
        return Ok(());
    }
    Err(format!(
        "the container engine at `{}` belongs to another user, so that this worker could not kill its containers: run the worker as root, or use a rootless engine",
        socket.display()
    ))
}

/// Returns the message of an error, without the words of the library.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => one_line(message),
        Error::DockerStreamError { error } => one_line(error),
        Error::RequestTimeoutError => "no answer in time".into(),
        other => one_line(&model::error_chain::Chain(other).to_string()),
    }
}

/// Returns a text as one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_has_a_socket_on_this_machine() {
        assert_eq!(socket_of("unix:///run/x.sock"), Ok("/run/x.sock".into()));
        assert_eq!(socket_of("/run/x.sock"), Ok("/run/x.sock".into()));
        assert!(socket_of("tcp://10.0.0.1:2375").unwrap_err().contains("unix:///PATH"));
    }

    #[tokio::test]
    async fn a_missing_engine_is_named() {
        let error = connect(Some("/no/engine.sock"), TIMEOUT).await.unwrap_err();
        assert!(error.contains("`/no/engine.sock`"), "{error}");
        let disabled = connect(Some("none"), TIMEOUT).await.unwrap_err();
        assert!(disabled.contains("worker.container_engine"), "{disabled}");
    }
}
