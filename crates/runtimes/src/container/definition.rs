//! What the engine is asked to create.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, PortBinding};
use model::spec::ContainerRun;
use shim::ShimOrder;

use super::image::Defaults;
use super::{gate, leftovers};

/// Directory of the execution in the container.
const FOLDER: &str = "/belfry";
/// Directory of the volumes in the container.
const VOLUMES: &str = "/volumes";
/// File with the script, in the directory of the execution.
const SCRIPT: &str = ".belfry-container-script";
const SHELL: &str = "/bin/sh";
/// Capabilities with which root in a container can make files in `/belfry` and in volumes that are dangerous outside: devices,
/// and programs with capabilities.
const DROPPED: [&str; 3] = ["MKNOD", "SETFCAP", "AUDIT_WRITE"];

/// Writes the script of the job, if it has one.
pub(super) fn write_script(run: &ContainerRun) -> io::Result<()> {
    let Some(script) = &run.script else { return Ok(()) };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(SCRIPT)?;
    file.write_all(script.as_bytes())
}

/// Returns the definition of the container; `program` is what the gate executes, and `variables` is the environment of the shim.
pub(super) fn definition(
    order: &ShimOrder,
    run: &ContainerRun,
    (program, parent): (Vec<String>, String),
    variables: impl Iterator<Item = (String, String)>,
) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(run.image.clone()),
        entrypoint: Some(vec![gate::PROGRAM_INSIDE.to_owned()]),
        cmd: Some(program),
        env: Some(environment(order, run, variables)),
        working_dir: run.working_directory.clone(),
        user: run.user.clone(),
        labels: Some(leftovers::labels(order)),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        exposed_ports: Some(forwards(order, run).into_iter().map(|(inside, _)| inside).collect()),
        host_config: Some(host_config(order, run, parent)),
        ..ContainerCreateBody::default()
    }
}

/// Returns the program of a container with its arguments, as the engine would choose it; empty if there is none.
pub(super) fn program(run: &ContainerRun, image: &Defaults) -> Vec<String> {
    if run.script.is_some() {
        let interpreter =
            if run.interpreter.is_empty() { vec![SHELL.to_owned()] } else { run.interpreter.clone() };
        return [interpreter, vec![format!("{FOLDER}/{SCRIPT}")]].concat();
    }
    let replaces = !run.entrypoint.is_empty();
    let entrypoint = if replaces { &run.entrypoint } else { &image.entrypoint };
    let command = if run.command.is_empty() && !replaces { &image.command } else { &run.command };
    [entrypoint.as_slice(), command].concat()
}

/// Returns the variables of the job, and those of Belfry with the paths in the container.
fn environment(
    order: &ShimOrder,
    run: &ContainerRun,
    variables: impl Iterator<Item = (String, String)>,
) -> Vec<String> {
    let inside = |name: &str, value: String| {
        if let Some(volume) = order.volumes.iter().find(|volume| volume.variable == name) {
            return format!("{VOLUMES}/{}", volume.name);
        }
        // They are the paths of files in the directory of the execution.
        let is_path =
            ["BELFRY_OUTPUT", "BELFRY_CHECKPOINT", "BELFRY_STOP_REASON", "BELFRY_SOCKET"].contains(&name);
        match value.rsplit_once('/') {
            Some((_, file)) if is_path => format!("{FOLDER}/{file}"),
            _ => value,
        }
    };
    let own = variables.filter(|(name, _)| name.starts_with("BELFRY_"));
    let own = own.map(|(name, value)| format!("{name}={}", inside(&name, value)));
    run.env.iter().map(|(name, value)| format!("{name}={value}")).chain(own).collect()
}

/// Returns the ports in the container, with those of the worker that are forwarded to them.
fn forwards(order: &ShimOrder, run: &ContainerRun) -> Vec<(String, u16)> {
    if matches!(run.network.as_deref(), Some("host" | "none")) {
        return Vec::new();
    }
    let forward = |port: &shim::ForwardedPort| {
        let inside = run.container_ports.get(&port.name).copied().unwrap_or(port.number);
        (format!("{inside}/tcp"), port.number)
    };
    order.ports.iter().map(forward).collect()
}

fn host_config(order: &ShimOrder, run: &ContainerRun, parent: String) -> HostConfig {
    let limits = &order.limits;
    let memory = limits.memory.and_then(|memory| i64::try_from(memory.0).ok());
    let mut bindings = HashMap::<String, Option<Vec<PortBinding>>>::new();
    for (inside, number) in forwards(order, run) {
        let binding = PortBinding { host_ip: None, host_port: Some(number.to_string()) };
        bindings.entry(inside).or_default().get_or_insert_default().push(binding);
    }
    HostConfig {
        memory,
        // Memory and swap together: no swap.
        memory_swap: memory,
        nano_cpus: limits.cpu.map(|cpu| i64::from(cpu.0) * 1_000_000),
        pids_limit: limits.pids.map(i64::from),
        network_mode: Some(run.network.clone().unwrap_or_else(|| "bridge".into())),
        port_bindings: Some(bindings),
        mounts: Some(mounts(order)),
        readonly_rootfs: Some(run.read_only),
        tmpfs: run.read_only.then(|| [("/tmp".to_owned(), String::new())].into()),
        security_opt: Some(vec!["no-new-privileges".into()]),
        cap_drop: Some(DROPPED.map(str::to_owned).into()),
        cgroup_parent: Some(parent),
        // The log of the execution is the only one.
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        ..HostConfig::default()
    }
}

fn mounts(order: &ShimOrder) -> Vec<Mount> {
    let bind = |source: String, target: String| Mount {
        source: Some(source),
        target: Some(target),
        typ: Some(MountType::BIND),
        ..Mount::default()
    };
    let execution = std::env::current_dir().unwrap_or_default();
    let (folder, gate) = (execution.display().to_string(), gate::folder(&execution).display().to_string());
    let gate = Mount { read_only: Some(true), ..bind(gate, gate::FOLDER_INSIDE.into()) };
    let volumes = order.volumes.iter();
    let volumes = volumes.map(|volume| Mount {
        read_only: Some(volume.read_only),
        ..bind(volume.path.display().to_string(), format!("{VOLUMES}/{}", volume.name))
    });
    [bind(folder, FOLDER.into()), gate].into_iter().chain(volumes).collect()
}

#[cfg(test)]
mod tests {
    use model::ExecutionId;
    use model::spec::{Limits, Run};
    use model::{Bytes, Millicores};
    use shim::{ForwardedPort, MountedVolume};

    use super::*;

    fn order() -> ShimOrder {
        ShimOrder {
            execution: ExecutionId::from_bits(1),
            job_name: "web".into(),
            worker: "w".into(),
            run: Run::Container(Box::default()),
            command: Vec::new(),
            environment: Vec::new(),
            secrets: Default::default(),
            sandbox: shim::SandboxPaths::default(),
            limits: Limits {
                memory: Some(Bytes(1 << 20)),
                cpu: Some(Millicores(500)),
                pids: Some(7),
                ..Limits::default()
            },
            ports: vec![
                ForwardedPort { name: "http".into(), number: 20_001 },
                ForwardedPort { name: "admin".into(), number: 20_002 },
            ],
            volumes: vec![MountedVolume {
                name: "data".into(),
                variable: "BELFRY_VOLUME_DATA".into(),
                path: "/srv/data".into(),
                read_only: false,
            }],
            engine: None,
        }
    }

    fn variables() -> impl Iterator<Item = (String, String)> {
        [
            ("HOME", "/x/1"),
            ("BELFRY_OUTPUT", "/x/1/.belfry-output"),
            ("BELFRY_SOCKET", "/tmp/link/1/.belfry.sock"),
            ("BELFRY_VOLUME_DATA", "/srv/data"),
            ("BELFRY_JOB_NAME", "web"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    }

    #[test]
    fn variables_have_the_paths_in_the_container() {
        let run = ContainerRun { env: [("A".to_owned(), "1".to_owned())].into(), ..ContainerRun::default() };
        assert_eq!(
            definition(&order(), &run, (Vec::new(), "/p".into()), variables()).env.unwrap(),
            [
                "A=1",
                "BELFRY_OUTPUT=/belfry/.belfry-output",
                "BELFRY_SOCKET=/belfry/.belfry.sock",
                "BELFRY_VOLUME_DATA=/volumes/data",
                "BELFRY_JOB_NAME=web",
            ]
        );
    }

    #[test]
    fn limits_and_ports_are_those_of_the_job() {
        let run =
            ContainerRun { container_ports: [("http".to_owned(), 80)].into(), ..ContainerRun::default() };
        let body = definition(&order(), &run, (Vec::new(), "/p".into()), variables());
        let host = body.host_config.unwrap();
        assert_eq!((host.memory, host.memory_swap), (Some(1 << 20), Some(1 << 20)));
        assert_eq!((host.nano_cpus, host.pids_limit), (Some(500_000_000), Some(7)));
        let bindings = host.port_bindings.unwrap();
        let port = |inside: &str| bindings[inside].as_ref().unwrap()[0].host_port.clone().unwrap();
        assert_eq!((port("80/tcp"), port("20002/tcp")), ("20001".into(), "20002".into()));
        assert_eq!(body.exposed_ports.unwrap(), ["80/tcp", "20002/tcp"]);
    }

    #[test]
    fn a_container_in_the_network_of_the_worker_forwards_no_port() {
        let run = ContainerRun { network: Some("host".into()), ..ContainerRun::default() };
        let host = definition(&order(), &run, (Vec::new(), "/p".into()), variables()).host_config.unwrap();
        assert_eq!((host.network_mode.as_deref(), host.port_bindings), (Some("host"), Some(HashMap::new())));
    }

    #[test]
    fn the_program_is_that_of_the_job_or_of_the_image() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let image =
            Defaults { entrypoint: words("entry"), command: words("image command"), user: String::new() };
        let of = |entrypoint: &str, command: &str, script: Option<&str>| {
            let run = ContainerRun {
                entrypoint: words(entrypoint),
                command: words(command),
                script: script.map(str::to_owned),
                ..ContainerRun::default()
            };
            program(&run, &image).join(" ")
        };
        assert_eq!(of("", "", None), "entry image command");
        assert_eq!(of("", "own", None), "entry own");
        assert_eq!(of("other", "", None), "other");
        assert_eq!(of("other", "own", None), "other own");
        assert_eq!(of("", "", Some("echo")), "/bin/sh /belfry/.belfry-container-script");
    }
}
