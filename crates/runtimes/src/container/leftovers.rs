//! Containers whose shim was killed.
//!
//! The supervisor kills the processes of such a container, but the container stays in the engine. Its labels name its shim,
//! so any later shim of this machine can remove it.

use std::collections::HashMap;

use bollard::Docker;
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use shim::ShimOrder;

/// Label with the id of the execution; every container of Belfry has it.
const EXECUTION: &str = "belfry.execution";
/// Label with the shim: its process id and the time at which it started, in clock ticks since boot.
const SHIM: &str = "belfry.shim";
/// Label with the boot of the machine, because process ids begin again with each boot.
const BOOT: &str = "belfry.boot";
/// Label with the namespace of the process ids: a shim in another one says nothing about whether it is alive.
const NAMESPACE: &str = "belfry.pid-namespace";

/// Returns the labels of the container of an execution.
pub(super) fn labels(order: &ShimOrder) -> HashMap<String, String> {
    [
        (EXECUTION, order.execution.to_string()),
        ("belfry.job", order.job_name.clone()),
        ("belfry.worker", order.worker.clone()),
        (SHIM, identity(std::process::id()).unwrap_or_default()),
        (BOOT, boot_id()),
        (NAMESPACE, pid_namespace()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Removes the containers whose shim has ended.
pub(super) async fn remove(engine: &Docker) {
    let filters = HashMap::from([("label".to_owned(), vec![EXECUTION.to_owned()])]);
    let options =
        ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
    let Ok(containers) = engine.list_containers(Some(options)).await else { return };
    for container in containers {
        let (Some(id), Some(labels)) = (container.id, container.labels) else { continue };
        if !has_shim(&labels) {
            let options =
                RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
            // If it fails, the next probe tries again.
            engine.remove_container(&id, Some(options)).await.ok();
        }
    }
}

/// Returns whether the shim of a container is alive, or may be.
fn has_shim(labels: &HashMap<String, String>) -> bool {
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    if label(NAMESPACE) != pid_namespace() {
        return true;
    }
    let pid = label(SHIM).split('-').next().and_then(|pid| pid.parse().ok());
    label(BOOT) == boot_id() && pid.and_then(identity).is_some_and(|shim| shim == label(SHIM))
}

/// Returns the process id and the start time of a process; `None` if it does not exist or has exited.
pub(super) fn identity(pid: u32) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    // The start time is field 22; the state is field 3.
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| format!("{pid}-{started}"))
}

fn pid_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid").unwrap_or_default().display().to_string()
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_left_over_if_its_shim_or_its_boot_has_ended() {
        let labels = |shim: &str, boot: &str| {
            let labels = [(SHIM, shim), (BOOT, boot), (NAMESPACE, &pid_namespace())];
            labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        };
        let own = identity(std::process::id()).unwrap();
        assert!(has_shim(&labels(&own, &boot_id())));
        assert!(!has_shim(&labels(&own, "another boot")));
        assert!(
            !has_shim(&labels(&format!("{}-1", std::process::id()), &boot_id())),
            "another process with the same id"
        );
        assert!(!has_shim(&labels("", &boot_id())));
        let mut elsewhere = labels("", &boot_id());
        elsewhere.insert(NAMESPACE.into(), "pid:[1]".into());
        assert!(has_shim(&elsewhere), "its shim is not visible here");
    }
}
