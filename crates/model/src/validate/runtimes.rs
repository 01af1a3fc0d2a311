//! Checks of the runtimes `container` and `http`, and of the sandbox of a process.

use std::collections::BTreeMap;

use super::{Check, shown, too_long, too_many};
use crate::expression::{Expression, Names, Type};
use crate::limits;
use crate::spec::{
    ContainerRun, HttpPoll, HttpRun, JobSpec, Run, Sandbox, SandboxLevel, SandboxNetwork, StatusRange,
};

/// Headers that the connection determines.
const RESERVED_HEADERS: [&str; 4] = ["host", "content-length", "connection", "transfer-encoding"];

/// Checks the sandbox of a process, and what it cannot be combined with.
pub(super) fn sandbox(check: &mut Check, spec: &JobSpec, sandbox: &Sandbox) {
    check.ensure(
        sandbox.level != SandboxLevel::None || sandbox.network.is_none(),
        "run.process.sandbox.network",
        || "needs a sandbox: set `level` to `basic` or `strict`".into(),
    );
    for (at, problem) in conflicts(spec, sandbox) {
        check.fail(&at, problem);
    }
}

/// Returns the first field of a job that its sandbox excludes, with the problem. The namespace of a job may have given it a
/// sandbox after the job was checked.
pub(super) fn conflict(spec: &JobSpec) -> Option<String> {
    let sandbox = spec.run.as_process()?.sandbox;
    conflicts(spec, &sandbox).into_iter().next().map(|(at, problem)| format!("`{at}` {problem}"))
}

fn conflicts(spec: &JobSpec, sandbox: &Sandbox) -> Vec<(String, String)> {
    if sandbox.level == SandboxLevel::None {
        return Vec::new();
    }
    let network = sandbox.network();
    let has_checks = spec.health.as_deref().is_some_and(|checks| !checks.is_empty());
    let needs_host = [("ports", !spec.ports.is_empty()), ("health", has_checks)];
    let needs_host = needs_host.into_iter().filter(|(_, is_set)| *is_set && network != SandboxNetwork::Host);
    let needs_host = needs_host.map(|(field, _)| {
        let problem = format!(
            "cannot be combined with the network `{network}` of the sandbox: set `run.process.sandbox.network` to `host`, or omit `{field}`"
        );
        (field.to_owned(), problem)
    });
    let checks = spec.health.as_deref().into_iter().flat_map(|checks| checks.iter());
    let commands = checks.filter(|(_, check)| !check.command.is_empty()).map(|(name, _)| {
        let problem = "has a `command`, which would run outside the sandbox: use `http`, `tcp` or `grpc`";
        (format!("health.{name}"), problem.to_owned())
    });
    needs_host.chain(commands).collect()
}

pub(super) fn container(check: &mut Check, spec: &JobSpec, container: &ContainerRun) {
    let at = |field: &str| format!("run.container.{field}");
    image(check, &at("image"), &container.image);
    for (list, name) in [
        (&container.command, "command"),
        (&container.entrypoint, "entrypoint"),
        (&container.interpreter, "interpreter"),
    ] {
        check.arguments(&at(name), list);
    }
    if let Some(script) = &container.script {
        check.ensure(!script.trim().is_empty(), &at("script"), || "must not be empty".into());
        check.no_nul(&at("script"), script);
        let alone = container.command.is_empty() && container.entrypoint.is_empty();
        check.ensure(alone, &at("script"), || {
            "replaces the entry point and the command: omit `entrypoint` and `command`, or omit `script`"
                .into()
        });
    }
    check.ensure(container.script.is_some() || container.interpreter.is_empty(), &at("interpreter"), || {
        "cannot be set without `script`".into()
    });
    check.env(&at("env"), &container.env);
    if let Some(dir) = &container.working_directory {
        check.ensure(dir.starts_with('/'), &at("working_directory"), || {
            format!("`{}` is not an absolute path in the container", shown(dir))
        });
        check.ensure(dir.len() <= limits::PATH_LEN_MAX, &at("working_directory"), || {
            too_long(dir.len(), limits::PATH_LEN_MAX)
        });
        check.no_nul(&at("working_directory"), dir);
    }
    if let Some(user) = &container.user {
        word(check, &at("user"), user, "a user");
    }
    let network = container.network.as_deref().unwrap_or("bridge");
    word(check, &at("network"), network, "a network");
    // The network of another container is a way around the limits of this one.
    check.ensure(!network.starts_with("container:"), &at("network"), || {
        "must not be the network of another container".into()
    });
    for (name, number) in &container.container_ports {
        let at = format!("{}.{}", at("container_ports"), shown(name));
        check.ensure(spec.ports.iter().any(|port| port.name == *name), &at, || {
            format!("the job has no port `{}`: add it to `ports`", shown(name))
        });
        check.ensure(*number > 0, &at, || "must be from 1 to 65535".into());
    }
    let forwards = !matches!(network, "host" | "none");
    check.ensure(forwards || container.container_ports.is_empty(), &at("container_ports"), || {
        format!("cannot be combined with the network `{}`", shown(network))
    });
    check.ensure(network != "none" || spec.ports.is_empty(), "ports", || {
        "cannot be combined with the network `none` of the container".into()
    });
}

/// Checks the form of an image reference. The engine knows its exact grammar.
fn image(check: &mut Check, at: &str, image: &str) {
    let is_image = image.starts_with(|c: char| c.is_ascii_alphanumeric())
        && image.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b));
    check.ensure(is_image, at, || {
        format!(
            "`{}` is not an image: expected, for example, `alpine:3.20` or `ghcr.io/team/app@sha256:…`",
            shown(image)
        )
    });
    check.ensure(image.len() <= limits::IMAGE_LEN_MAX, at, || too_long(image.len(), limits::IMAGE_LEN_MAX));
}

fn word(check: &mut Check, at: &str, text: &str, what: &str) {
    let ok = (1..=limits::NAME_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:".contains(&b));
    check.ensure(ok, at, || {
        format!(
            "`{}` is not {what}: expected 1 to {} letters, digits, `-`, `_`, `.` or `:`",
            shown(text),
            limits::NAME_LEN_MAX
        )
    });
}

pub(super) fn http(check: &mut Check, spec: &JobSpec, http: &HttpRun) {
    let at = |field: &str| format!("run.http.{field}");
    check.url(&at("url"), &http.url);
    headers(check, &at("headers"), &http.headers);
    if let Some(timeout) = http.request_timeout {
        check.ensure(timeout > crate::Duration::ZERO, &at("request_timeout"), || {
            "must be greater than 0".into()
        });
        check.at_most(&at("request_timeout"), timeout, limits::REQUEST_TIMEOUT_MAX);
    }
    let (count, max) = (http.success_status.len(), limits::HTTP_STATUS_RANGES_MAX);
    check.ensure(count <= max, &at("success_status"), || too_many(count, max));
    for (i, range) in http.success_status.iter().enumerate() {
        check.ensure(StatusRange::parse(range).is_some(), &at(&format!("success_status[{i}]")), || {
            format!(
                "`{}` is not a set of status codes: expected, for example, `200`, `2xx` or `200-204`",
                shown(range)
            )
        });
    }
    if let Some(condition) = &http.success_if {
        expression(check, &at("success_if"), condition, true);
    }
    let (count, max) = (http.outputs.len(), limits::HTTP_OUTPUTS_MAX);
    check.ensure(count <= max, &at("outputs"), || too_many(count, max));
    for (name, value) in &http.outputs {
        check.name(&at("outputs"), name);
        expression(check, &at(&format!("outputs.{}", shown(name))), value, false);
    }
    if let Some(poll) = &http.poll {
        polling(check, &at("poll"), poll);
    }
    let unused = [
        ("inputs", spec.inputs.is_empty()),
        ("outputs", spec.outputs.is_empty()),
        ("ports", spec.ports.is_empty()),
        ("health", spec.health.is_none()),
        ("volumes", spec.volumes.is_empty()),
    ];
    for (field, is_empty) in unused {
        check.ensure(is_empty, field, || format!("cannot be set with the runtime `{}`", Run::HTTP));
    }
}

fn headers(check: &mut Check, at: &str, headers: &BTreeMap<String, String>) {
    let (count, max) = (headers.len(), limits::HTTP_HEADERS_MAX);
    check.ensure(count <= max, at, || too_many(count, max));
    for (name, value) in headers {
        let at = format!("{at}.{}", shown(name));
        let is_token = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        check.ensure(is_token, &at, || "is not the name of a header".into());
        check.ensure(!RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()), &at, || {
            "is reserved: the connection determines it".into()
        });
        check.ensure(!value.chars().any(char::is_control), &at, || {
            "must not contain control characters".into()
        });
        let size = name.len() + value.len();
        check.ensure(size <= limits::ENV_VAR_BYTES_MAX, &at, || too_long(size, limits::ENV_VAR_BYTES_MAX));
    }
}

fn polling(check: &mut Check, at: &str, poll: &HttpPoll) {
    if let Some(url) = &poll.url {
        check.url(&format!("{at}.url"), url);
        for reference in references(url) {
            expression(check, &format!("{at}.url"), reference, false);
        }
    }
    if let Some(interval) = poll.interval {
        check.ensure(interval >= limits::POLL_INTERVAL_MIN, &format!("{at}.interval"), || {
            format!("`{interval}` is too short: expected at least {}", limits::POLL_INTERVAL_MIN)
        });
        check.at_most(&format!("{at}.interval"), interval, limits::POLL_INTERVAL_MAX);
    }
    if let Some(condition) = &poll.done_if {
        expression(check, &format!("{at}.done_if"), condition, true);
    }
}

/// Returns the expressions over the first response in the URL of a polling.
fn references(url: &str) -> impl Iterator<Item = &str> {
    url.split("${response.").skip(1).filter_map(|rest| rest.split_once('}')).map(|(expression, _)| expression)
}

fn expression(check: &mut Check, at: &str, text: &str, is_condition: bool) {
    match Expression::parse(text).and_then(|parsed| parsed.check(&ResponseNames)) {
        Err(error) => check.fail(at, error.to_string()),
        Ok(found) => check.ensure(!is_condition || found.is_compatible_with(&Type::Bool), at, || {
            format!("is {found}: expected a condition, such as `status == 200`")
        }),
    }
}

/// Names of an expression over a response.
struct ResponseNames;

impl Names for ResponseNames {
    fn type_of(&self, path: &[String]) -> Result<Type, String> {
        let (name, fields) = path.split_first().ok_or("must not be empty")?;
        match name.as_str() {
            "status" | "elapsed_ms" => Type::Number.select(fields),
            "headers" => Type::Map.select(fields),
            "body" => Type::Any.select(fields),
            _ => Err(format!(
                "there is no `{}`: expected `status`, `headers`, `body` or `elapsed_ms`",
                shown(name)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::spec::{CheckedPort, HealthCheck, HealthChecks, Port, TcpCheck};

    fn problems(spec: &JobSpec) -> String {
        match super::super::job(spec, Timestamp::default()) {
            Ok(()) => "fine".into(),
            Err(invalid) => invalid.problems.iter().map(|p| format!("{}: {}\n", p.path, p.message)).collect(),
        }
    }

    fn of_container(container: ContainerRun) -> JobSpec {
        JobSpec::new(Run::Container(Box::new(container)))
    }

    fn of_http(http: HttpRun) -> JobSpec {
        JobSpec::new(Run::Http(Box::new(http)))
    }

    #[test]
    fn an_image_is_enough_for_a_container() {
        for image in ["alpine", "alpine:3.20", "ghcr.io/team/app@sha256:0000", "localhost:5000/a/b:c"] {
            assert_eq!(
                problems(&of_container(ContainerRun { image: image.into(), ..ContainerRun::default() })),
                "fine"
            );
        }
    }

    #[test]
    fn every_field_of_a_container_is_checked() {
        let mut spec = of_container(ContainerRun {
            image: "-v /:/host alpine".into(),
            command: vec!["a\0".into()],
            script: Some(" ".into()),
            interpreter: vec!["sh".into()],
            env: [("BELFRY_X".to_owned(), "1".to_owned())].into(),
            working_directory: Some("work".into()),
            user: Some("a b".into()),
            network: Some("container:other".into()),
            container_ports: [("web".to_owned(), 0)].into(),
            ..ContainerRun::default()
        });
        insta::assert_snapshot!(problems(&spec), @r"
        run.container.image: `-v /:/host alpine` is not an image: expected, for example, `alpine:3.20` or `ghcr.io/team/app@sha256:…`
        run.container.command[0]: must not contain NUL bytes
        run.container.script: must not be empty
        run.container.script: replaces the entry point and the command: omit `entrypoint` and `command`, or omit `script`
        run.container.env.BELFRY_X: is reserved: Belfry sets `BELFRY_*`, and `LD_*` controls the dynamic linker
        run.container.working_directory: `work` is not an absolute path in the container
        run.container.user: `a b` is not a user: expected 1 to 63 letters, digits, `-`, `_`, `.` or `:`
        run.container.network: must not be the network of another container
        run.container.container_ports.web: the job has no port `web`: add it to `ports`
        run.container.container_ports.web: must be from 1 to 65535
        ");
        spec = of_container(ContainerRun {
            image: "web".into(),
            network: Some("none".into()),
            container_ports: [("http".to_owned(), 80)].into(),
            interpreter: vec!["sh".into()],
            ..ContainerRun::default()
        });
        spec.ports = vec![Port { name: "http".into(), port: None }];
        insta::assert_snapshot!(problems(&spec), @r"
        run.container.interpreter: cannot be set without `script`
        run.container.container_ports: cannot be combined with the network `none`
        ports: cannot be combined with the network `none` of the container
        ");
    }

    #[test]
    fn a_health_check_of_a_container_needs_no_command() {
        let mut spec = of_container(ContainerRun { image: "web".into(), ..ContainerRun::default() });
        let check = |command: &[&str], tcp| HealthCheck {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            tcp,
            ..HealthCheck::default()
        };
        let tcp = TcpCheck { port: CheckedPort::Number(80) };
        spec.health = Some(Box::new(HealthChecks {
            readiness: Some(check(&[], Some(tcp))),
            liveness: Some(check(&["curl"], None)),
            ..HealthChecks::default()
        }));
        insta::assert_snapshot!(problems(&spec), @"health.liveness: has a `command`, which the runtime `container` does not support: use `http`, `tcp` or `grpc`");
    }

    #[test]
    fn a_url_is_enough_for_a_request() {
        assert_eq!(
            problems(&of_http(HttpRun { url: "https://example.com/x".into(), ..HttpRun::default() })),
            "fine"
        );
    }

    #[test]
    fn every_field_of_a_request_is_checked() {
        let mut spec = of_http(HttpRun {
            url: "ftp://x".into(),
            headers: [("Host".to_owned(), "x".to_owned()), ("a b".to_owned(), "c\n".to_owned())].into(),
            request_timeout: Some(crate::Duration::ZERO),
            success_status: vec!["2xx".into(), "abc".into()],
            success_if: Some("response.code == 0".into()),
            outputs: [("id".to_owned(), "body.".to_owned())].into(),
            poll: Some(HttpPoll {
                url: Some("http://x/${response.body.id}/${response.bodi}".into()),
                interval: Some(crate::Duration::from_millis(10)),
                done_if: Some("1".into()),
            }),
            ..HttpRun::default()
        });
        spec.ports = vec![Port { name: "http".into(), port: None }];
        insta::assert_snapshot!(problems(&spec), @r"
        run.http.url: `ftp://x` is not a URL: expected `https://HOST…` or `http://HOST…`
        run.http.headers.Host: is reserved: the connection determines it
        run.http.headers.a b: is not the name of a header
        run.http.headers.a b: must not contain control characters
        run.http.request_timeout: must be greater than 0
        run.http.success_status[1]: `abc` is not a set of status codes: expected, for example, `200`, `2xx` or `200-204`
        run.http.success_if: there is no `response`: expected `status`, `headers`, `body` or `elapsed_ms` at column 1
        run.http.outputs.id: expected the name of a field after `.` at column 5
        run.http.poll.url: there is no `bodi`: expected `status`, `headers`, `body` or `elapsed_ms` at column 1
        run.http.poll.interval: `10ms` is too short: expected at least 1s
        run.http.poll.done_if: is a number: expected a condition, such as `status == 200`
        ports: cannot be set with the runtime `http`
        ");
    }
}
