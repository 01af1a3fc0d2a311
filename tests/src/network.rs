//! A network of its own for a worker, where the rights for one are there.
//!
//! A [`Branch`] is a network namespace with one cable to the machine: real packets are dropped by
//! the kernel, in one direction or both.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace and its cable; gone with its value.
#[derive(Debug)]
pub struct Branch {
    name: String,
    cable: String,
    here: Ipv4Addr,
    there: Ipv4Addr,
}

/// Which packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The cable is pulled.
    Cable,
    /// What comes from the branch.
    FromThere,
    /// What goes to the branch.
    ToThere,
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        other => Err(format!("`ip {}`: {other:?}", arguments.join(" "))),
    }
}

impl Branch {
    /// A new one.
    ///
    /// # Errors
    /// Why there is none, where the rights or the tools for it are missing.
    pub fn make() -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        // A net of four addresses, at a place of its own for each process and branch.
        let place = (process.wrapping_mul(64).wrapping_add(number % 64) % (1 << 14)) * 4;
        let net = u32::from(Ipv4Addr::new(10, 213, 0, 0)) + place;
        let branch = Self {
            name: format!("belfry-{process}-{number}"),
            cable: format!("bf{process}n{number}"),
            here: Ipv4Addr::from(net + 1),
            there: Ipv4Addr::from(net + 2),
        };
        let Self { name, cable, here, there } = &branch;
        let (here, there, far) = (format!("{here}/30"), format!("{there}/30"), "cable");
        ip(&["netns", "add", name])?;
        // From here on its end cleans up.
        ip(&["link", "add", cable, "type", "veth", "peer", "name", far, "netns", name])?;
        ip(&["addr", "add", &here, "dev", cable])?;
        ip(&["link", "set", cable, "up"])?;
        for arguments in [
            &["addr", "add", there.as_str(), "dev", far][..],
            &["link", "set", far, "up"],
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
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// The address of this machine that the branch can reach.
    pub fn here(&self) -> Ipv4Addr {
        self.here
    }

    /// A command that runs within.
    pub fn command(&self, program: &std::path::Path) -> tokio::process::Command {
        self.std_command(program).into()
    }

    /// Drops packets silently.
    pub fn cut(&self, cut: Cut) {
        // A second time it is as it was; both that and a mended cable are well.
        let _ = match cut {
            Cut::Cable => ip(&["link", "set", &self.cable, "down"]),
            Cut::FromThere => ip(&["-n", &self.name, "route", "add", "blackhole", &self.here.to_string()]),
            Cut::ToThere => ip(&["route", "add", "blackhole", &self.there.to_string()]),
        };
    }

    /// Lets packets through again.
    pub fn mend(&self, cut: Cut) {
        let _ = match cut {
            Cut::Cable => ip(&["link", "set", &self.cable, "up"]),
            Cut::FromThere => ip(&["-n", &self.name, "route", "del", "blackhole", &self.here.to_string()]),
            Cut::ToThere => ip(&["route", "del", "blackhole", &self.there.to_string()]),
        };
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        self.mend(Cut::ToThere);
        let _ = ip(&["link", "del", &self.cable]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}
