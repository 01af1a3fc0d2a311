//! Sidecars: programs that run beside the process of a task.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use model::spec::{CheckedPort, Port, Sidecar, SidecarCheck};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::children::{Children, Exit};

/// Pause between two checks whether a sidecar is ready, and time that one connection may take.
const READY_INTERVAL: Duration = Duration::from_millis(100);

/// Running sidecars, in the order of their start.
#[derive(Debug, Default)]
pub(super) struct Sidecars {
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    name: String,
    pid: Pid,
    grace: Duration,
}

impl Sidecars {
    /// Starts a sidecar and waits until it is ready. Returns [`Exit::SUCCESS`], or how the task ends instead.
    pub(super) fn start(&mut self, children: &mut Children, sidecar: &Sidecar) -> Exit {
        if let Some(stopped) = children.stopped() {
            return stopped;
        }
        let Some((program, arguments)) = sidecar.command.split_first() else { return Exit::SUCCESS };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        let pid = match children.start_group(command) {
            Ok(pid) => pid,
            Err(error) => return error.say(),
        };
        let name = sidecar.name.clone();
        self.running.push(Running { name, pid, grace: sidecar.grace.to_std() });
        wait_until_ready(children, sidecar, pid)
    }

    /// Says in the log that a sidecar has ended while the process runs.
    pub(super) fn say_ended(&self, pid: Pid, exit: Exit) {
        if let Some(sidecar) = self.running.iter().find(|sidecar| sidecar.pid == pid) {
            eprintln!("belfry: sidecar `{}` {exit} before the process", sidecar.name);
        }
    }

    /// Stops all sidecars, the last one first: SIGTERM, and SIGKILL after their grace period.
    pub(super) fn stop(&mut self, children: &mut Children) {
        for Running { pid, grace, .. } in self.running.drain(..).rev() {
            // Its id may belong to another process now. The supervisor kills what it has left behind.
            if children.try_wait(pid).is_some() {
                continue;
            }
            killpg(pid, Signal::SIGTERM).ok();
            children.wait_for_group(pid, Some(grace), false);
        }
    }
}

fn wait_until_ready(children: &mut Children, sidecar: &Sidecar, pid: Pid) -> Exit {
    let Some(check) = &sidecar.ready else { return Exit::SUCCESS };
    let began = Instant::now();
    loop {
        if is_ready(children, check, sidecar.ready_timeout.to_std()) {
            return Exit::SUCCESS;
        }
        if let Some(stopped) = children.stopped() {
            return stopped;
        }
        if let Some(exit) = children.try_wait(pid) {
            eprintln!("belfry: sidecar `{}` {exit} before it was ready", sidecar.name);
            return Exit::FAILURE;
        }
        if began.elapsed() >= sidecar.ready_timeout.to_std() {
            eprintln!("belfry: sidecar `{}` was not ready within {}", sidecar.name, sidecar.ready_timeout);
            return Exit::FAILURE;
        }
        std::thread::sleep(READY_INTERVAL);
    }
}

fn is_ready(children: &mut Children, check: &SidecarCheck, timeout: Duration) -> bool {
    match check {
        SidecarCheck::Tcp(tcp) => {
            let address = port_number(&tcp.port).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            address.is_some_and(|address| TcpStream::connect_timeout(&address, READY_INTERVAL).is_ok())
        }
        SidecarCheck::Command(words) => {
            let Some((program, arguments)) = words.split_first() else { return true };
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let started = children.start_group(command).map_err(|error| error.say());
            started.is_ok_and(|pid| children.wait_for_group(pid, Some(timeout), true) == Some(Exit::SUCCESS))
        }
    }
}

/// Returns the number of a port; the worker passes those of the job in the environment.
fn port_number(port: &CheckedPort) -> Option<u16> {
    match port {
        CheckedPort::Number(number) => Some(*number),
        CheckedPort::Name(name) => {
            let port = Port { name: name.clone(), port: None };
            std::env::var(port.variable()).ok()?.parse().ok()
        }
    }
}
