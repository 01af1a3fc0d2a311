//! Validation of the ports and health checks of a job.

use std::collections::BTreeSet;

use super::{Check, shown, too_many};
use crate::limits;
use crate::spec::{CheckedPort, HealthCheck, JobSpec, SidecarCheck};
use crate::time::Duration;

const INTERVAL_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(100);

pub(super) fn ports_and_checks(check: &mut Check, spec: &JobSpec) {
    let count = spec.ports.len();
    check.ensure(count <= limits::PORTS_MAX, "ports", || too_many(count, limits::PORTS_MAX));
    let (mut names, mut variables, mut numbers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (i, port) in spec.ports.iter().enumerate() {
        let at = format!("ports[{i}].name");
        let is_name = (1..=limits::PORT_NAME_LEN_MAX).contains(&port.name.len())
            && port.name.starts_with(|c: char| c.is_ascii_lowercase())
            && port.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        check.ensure(is_name, &at, || {
            format!(
                "`{}` is not a name of a port: expected 1 to {} lower-case letters, digits or `-`, starting with a letter",
                shown(&port.name),
                limits::PORT_NAME_LEN_MAX
            )
        });
        names.insert(port.name.as_str());
        check.ensure(variables.insert(port.variable()), &at, || {
            format!("another port has the environment variable `{}`: choose another name", port.variable())
        });
        if let Some(number) = port.port {
            let at = format!("ports[{i}].port");
            check.ensure(number > 0, &at, || "must be from 1 to 65535".into());
            check.ensure(numbers.insert(number), &at, || {
                format!("another port of the job has the number {number}")
            });
        }
    }
    let sidecars = spec.run.as_process().map_or(&[][..], |process| &process.sidecars);
    for (i, sidecar) in sidecars.iter().enumerate() {
        if let Some(SidecarCheck::Tcp(tcp)) = &sidecar.ready {
            checked_port(check, &format!("run.process.sidecars[{i}].ready.tcp.port"), &tcp.port, &names);
        }
    }
    let Some(checks) = spec.health.as_deref() else { return };
    for (name, health_check) in checks.iter() {
        let at = format!("health.{name}");
        one(check, &at, health_check, &names);
        check.ensure(health_check.command.is_empty() || spec.run.as_process().is_some(), &at, || {
            format!(
                "has a `command`, which the runtime `{}` does not support: use `http`, `tcp` or `grpc`",
                spec.run.runtime()
            )
        });
        check.ensure(
            name == "readiness" || health_check.success_threshold == 1,
            &format!("{at}.success_threshold"),
            || "must be 1: only `readiness` can need several successes".into(),
        );
    }
}

fn checked_port(check: &mut Check, at: &str, port: &CheckedPort, names: &BTreeSet<&str>) {
    match port {
        CheckedPort::Number(number) => {
            check.ensure(*number > 0, at, || "must be from 1 to 65535".into());
        }
        CheckedPort::Name(name) => check.ensure(names.contains(name.as_str()), at, || {
            format!("the job has no port `{}`: expected the name of one of `ports`, or a number", shown(name))
        }),
    }
}

fn one(check: &mut Check, at: &str, health_check: &HealthCheck, names: &BTreeSet<&str>) {
    let HealthCheck { http, tcp, grpc, command, .. } = health_check;
    let kinds =
        [http.is_some(), tcp.is_some(), grpc.is_some(), !command.is_empty()].into_iter().filter(|is| *is);
    check.ensure(kinds.count() == 1, at, || {
        "expected exactly one of `http`, `tcp`, `grpc` and `command`".into()
    });
    let ports = [
        ("http", http.as_ref().map(|http| &http.port)),
        ("tcp", tcp.as_ref().map(|tcp| &tcp.port)),
        ("grpc", grpc.as_ref().map(|grpc| &grpc.port)),
    ];
    for (kind, port) in ports.into_iter().filter_map(|(kind, port)| Some((kind, port?))) {
        checked_port(check, &format!("{at}.{kind}.port"), port, names);
    }
    if let Some(http) = http {
        let at = format!("{at}.http");
        let is_path = http.path.starts_with('/')
            && http.path.len() <= limits::PATH_LEN_MAX
            && http.path.bytes().all(|b| b.is_ascii_graphic());
        check.ensure(is_path, &format!("{at}.path"), || {
            format!(
                "`{}` is not a path: expected `/` and at most {} visible ASCII characters",
                shown(&http.path),
                limits::PATH_LEN_MAX
            )
        });
        let count = http.headers.len();
        check.ensure(count <= limits::HEADERS_MAX, &format!("{at}.headers"), || {
            too_many(count, limits::HEADERS_MAX)
        });
        for (name, value) in &http.headers {
            let is_name = !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            let is_value = value.len() <= limits::PATH_LEN_MAX
                && value.bytes().all(|b| b == b' ' || b == b'\t' || b.is_ascii_graphic());
            check.ensure(is_name && is_value, &format!("{at}.headers.{}", shown(name)), || {
                "is not a valid header".into()
            });
        }
    }
    for (i, arg) in command.iter().enumerate() {
        check.no_nul(&format!("{at}.command[{i}]"), arg);
    }
    check.ensure(command.len() <= limits::COMMAND_ARGS_MAX, &format!("{at}.command"), || {
        too_many(command.len(), limits::COMMAND_ARGS_MAX)
    });
    check.at_most(&format!("{at}.initial_delay"), health_check.initial_delay, limits::CHECK_INTERVAL_MAX);
    let between = |check: &mut Check, name: &str, value: Duration, min: Duration, max: Duration| {
        check.ensure((min..=max).contains(&value), &format!("{at}.{name}"), || {
            format!("`{value}` is out of range: expected {min} to {max}")
        });
    };
    between(check, "interval", health_check.interval, INTERVAL_MIN, limits::CHECK_INTERVAL_MAX);
    between(check, "timeout", health_check.timeout, TIMEOUT_MIN, limits::CHECK_TIMEOUT_MAX);
    for (name, value) in [
        ("failure_threshold", health_check.failure_threshold),
        ("success_threshold", health_check.success_threshold),
    ] {
        let max = limits::CHECK_THRESHOLD_MAX;
        check.ensure((1..=max).contains(&value), &format!("{at}.{name}"), || {
            format!("`{value}` is out of range: expected 1 to {max}")
        });
    }
}
