//! Namespaces: users, mounts, processes, IPC and network of a sandbox.

#![expect(unsafe_code, reason = "network interfaces have no safe interface")]

use std::fs;
use std::io;

use model::spec::{Sandbox, SandboxNetwork};
use nix::sched::CloneFlags;
use rustix::process::{getegid, geteuid};

use crate::error::{NAMESPACES, SandboxError, Step as _};

/// Gives the caller a new user, mount, IPC and, unless the sandbox has the network of the machine, network namespace; and its
/// next children a new process namespace.
///
/// The user keeps its number, so files have the same owners inside and outside. All other users and groups appear as the
/// overflow user; supplementary groups still grant what they grant outside.
///
/// # Errors
/// [`SandboxError`]: the kernel forbids it, or this process has several threads.
pub fn unshare(sandbox: &Sandbox) -> Result<(), SandboxError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC;
    if sandbox.network() != SandboxNetwork::Host {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    nix::sched::unshare(flags).step(NAMESPACES)?;
    // The kernel demands this before an ordinary user maps its group.
    fs::write("/proc/self/setgroups", "deny").step(NAMESPACES)?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).step(NAMESPACES)?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).step(NAMESPACES)
}

/// Starts the loopback interface of a new network namespace.
pub(crate) fn start_loopback() -> Result<(), SandboxError> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
    let socket = socket.step("open a socket")?;
    // SAFETY: plain data for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(up).unwrap_or(i16::MAX);
    let socket = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: `request` is valid for the call and has a name that ends with zero.
    let result = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) };
    if result < 0 { Err(io::Error::last_os_error()).step("start its loopback interface") } else { Ok(()) }
}
