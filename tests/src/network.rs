//! A separate network for a worker, if the process may create one.
//!
//! A [`Branch`] is a network namespace with one veth pair to the machine: the kernel drops real packets, in
//! one or both directions. [`Branch::command`] runs a program in it; [`Branch::cut`] and [`Branch::mend`]
//! change what is dropped.
//!
//! Without the permission to create namespaces, [`Branch::make`] returns the reason, and tests use a
//! [`proxy`](crate::proxy) instead.
//!
//! # Invariants
//! - Concurrent test processes have different subnets: the kernel refuses a second interface with the same
//!   name.
//! - A dropped branch is removed; those of killed processes are removed by the next one.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const NAMESPACES: &str = "/run/netns";
const PREFIX: &str = "belfry-";
/// Name of the interface inside the namespace.
const FAR_END: &str = "cable";
/// First subnet; each subnet has four addresses.
const FIRST_NET: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 0);
const NETS: u32 = 1 << 14;
/// Maximum number of subnets that are tried.
const TRIES: u32 = 64;

/// A network namespace and its veth pair, removed when dropped.
#[derive(Debug)]
pub struct Branch {
    namespace: Namespace,
    cable: String,
    here: Ipv4Addr,
    there: Ipv4Addr,
}

/// Which packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// All: the interface is down.
    Cable,
    /// Packets from the branch.
    FromThere,
    /// Packets to the branch.
    ToThere,
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        other => Err(format!("`ip {}`: {other:?}", arguments.join(" "))),
    }
}

/// Returns the `ip` arguments that create a veth pair into a namespace.
fn lay<'a>(cable: &'a str, namespace: &'a str) -> [&'a str; 10] {
    ["link", "add", cable, "type", "veth", "peer", "name", FAR_END, "netns", namespace]
}

/// A network namespace with the pid of this process in its name.
#[derive(Debug)]
struct Namespace {
    name: String,
}

impl Namespace {
    fn make() -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        Ok(Self { name })
    }

    /// Removes the namespaces of processes that were killed, whose addresses would otherwise stay in use.
    fn remove_leftovers() {
        for entry in std::fs::read_dir(NAMESPACES).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let owner = || name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok();
            if owner().is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
                let _ = ip(&["netns", "del", name]);
            }
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

impl Branch {
    /// Creates a branch.
    ///
    /// # Errors
    /// Returns the reason if permissions or tools are missing.
    pub fn make() -> Result<Self, String> {
        Namespace::remove_leftovers();
        let namespace = Namespace::make()?;
        let name = &namespace.name;
        // An interface has the number of its subnet in its name: if two processes want the same subnet, the kernel
        // refuses the second one.
        let (net, cable) = (0..TRIES)
            .map(|step| std::process::id().wrapping_add(step) % NETS)
            .map(|net| (net, format!("{PREFIX}{net}")))
            .find(|(_, cable)| ip(&lay(cable, name)).is_ok())
            .ok_or_else(|| format!("`ip {}` and similar commands failed", lay("CABLE", name).join(" ")))?;
        let address = u32::from(FIRST_NET) + net * 4;
        let (here, there) = (Ipv4Addr::from(address + 1), Ipv4Addr::from(address + 2));
        let branch = Self { namespace, cable, here, there };
        let Self { namespace: Namespace { name }, cable, .. } = &branch;
        // The process that used the subnet before may have been killed while it dropped packets.
        branch.mend(Cut::ToThere);
        ip(&["addr", "add", &format!("{here}/30"), "dev", cable])?;
        ip(&["link", "set", cable, "up"])?;
        for arguments in [
            &["addr", "add", &format!("{there}/30"), "dev", FAR_END][..],
            &["link", "set", FAR_END, "up"],
            &["link", "set", "lo", "up"],
        ] {
            ip(&[&["-n", name], arguments].concat())?;
        }
        let works = branch.std_command("true").status();
        works
            .is_ok_and(|status| status.success())
            .then_some(branch)
            .ok_or("`nsenter` does not work here".into())
    }

    fn std_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={NAMESPACES}/{}", self.namespace.name)).arg("--").arg(program);
        command
    }

    /// Returns the address of this machine that the branch can reach.
    pub fn here(&self) -> Ipv4Addr {
        self.here
    }

    /// Returns the address of the branch that this machine can reach.
    pub fn there(&self) -> Ipv4Addr {
        self.there
    }

    /// Returns a command that runs inside the namespace.
    pub fn command(&self, program: &Path) -> tokio::process::Command {
        self.std_command(program).into()
    }

    /// Drops packets silently.
    pub fn cut(&self, cut: Cut) {
        // Errors are ignored: the packets may be dropped already.
        let _ = match cut {
            Cut::Cable => ip(&["link", "set", &self.cable, "down"]),
            Cut::FromThere => {
                ip(&["-n", &self.namespace.name, "route", "add", "blackhole", &self.here.to_string()])
            }
            Cut::ToThere => ip(&["route", "add", "blackhole", &self.there.to_string()]),
        };
    }

    /// Stops dropping packets.
    pub fn mend(&self, cut: Cut) {
        let _ = match cut {
            Cut::Cable => ip(&["link", "set", &self.cable, "up"]),
            Cut::FromThere => {
                ip(&["-n", &self.namespace.name, "route", "del", "blackhole", &self.here.to_string()])
            }
            Cut::ToThere => ip(&["route", "del", "blackhole", &self.there.to_string()]),
        };
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        self.mend(Cut::ToThere);
        let _ = ip(&["link", "del", &self.cable]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two branches at the same time share no address, whatever the pids of their processes are.
    #[test]
    fn branches_have_separate_working_networks() {
        let (Ok(first), Ok(second)) = (Branch::make(), Branch::make()) else { return };
        assert_ne!(first.here, second.here);
        for branch in [&first, &second] {
            let listener = std::net::TcpListener::bind((branch.here(), 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let reach = format!("exec 3<>/dev/tcp/{}/{port}", branch.here());
            let reached = branch.std_command("bash").args(["-c", &reach]).status().unwrap();
            assert!(reached.success(), "{branch:?}");
        }
    }

    #[test]
    fn leftovers_of_a_killed_test_are_removed() {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let leftover = Namespace { name: format!("{PREFIX}{}-0", ended.id()) };
        if ip(&["netns", "add", &leftover.name]).is_err() {
            return;
        }
        Namespace::remove_leftovers();
        assert!(!Path::new(NAMESPACES).join(&leftover.name).exists());
    }
}
