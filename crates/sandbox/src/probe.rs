//! Which levels this machine supports, by trying them.

#![expect(unsafe_code, reason = "fork has no safe interface")]

use std::io::{Read as _, Write as _};

use model::spec::{Sandbox, SandboxLevel, SandboxNetwork};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use crate::{SandboxError, View, enter, unshare};

/// What the current user can create on this machine.
#[derive(Debug, Default)]
pub struct Probed {
    /// Supported levels.
    pub levels: Vec<SandboxLevel>,
    /// Why the other levels are not supported, as text for people.
    pub reasons: Vec<String>,
}

/// Enters a sandbox of each level, with a network of its own, in a child process. The caller must have one thread.
pub fn probe() -> Probed {
    let mut probed = Probed::default();
    for level in [SandboxLevel::Basic, SandboxLevel::Strict] {
        match attempt(level) {
            Ok(()) => probed.levels.push(level),
            Err(reason) => probed.reasons.push(format!("sandbox `{level}`: {reason}")),
        }
    }
    probed
}

/// Creates a sandbox and ends it; returns the reason if that fails.
fn attempt(level: SandboxLevel) -> Result<(), String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| error.to_string())?;
    let sandbox = Sandbox { level, network: Some(SandboxNetwork::Loopback) };
    // SAFETY: the caller has one thread, so the child may allocate.
    match unsafe { fork() }.map_err(|error| error.to_string())? {
        ForkResult::Child => {
            drop(reader);
            let result = enter_as_grandchild(&sandbox);
            if let Err(error) = &result {
                write!(writer, "{error}").ok();
            }
            // SAFETY: ends the process without running the exit handlers of the caller.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut reason = String::new();
            reader.read_to_string(&mut reason).ok();
            let ended = waitpid(child, None).map_err(|error| error.to_string())?;
            let succeeded = matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0));
            if succeeded { Ok(()) } else { Err(reason) }
        }
    }
}

fn enter_as_grandchild(sandbox: &Sandbox) -> Result<(), String> {
    unshare(sandbox).map_err(|error| error.to_string())?;
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| error.to_string())?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|error| error.to_string())? {
        ForkResult::Child => {
            drop(reader);
            // Any directory that all users can enter.
            let view = View { directory: "/usr".into(), ..View::default() };
            let result: Result<(), SandboxError> = enter(sandbox, &view);
            if let Err(error) = result {
                write!(writer, "{error}").ok();
            }
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut reason = String::new();
            reader.read_to_string(&mut reason).ok();
            let ended = waitpid(child, None).map_err(|error| error.to_string())?;
            match (reason.is_empty(), ended) {
                (true, nix::sys::wait::WaitStatus::Exited(_, 0)) => Ok(()),
                (true, ended) => Err(format!("the first process of the sandbox ended: {ended:?}")),
                (false, _) => Err(reason),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` in a process with one thread; returns what it returns.
    fn in_child(test: impl FnOnce() -> String) -> String {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: the child uses no lock that another thread of the test may hold, except that of the allocator, which the C
        // library releases in the child.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                drop(reader);
                writer.write_all(test().as_bytes()).ok();
                // SAFETY: ends the process without running the exit handlers of the test.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => {
                drop(writer);
                let mut text = String::new();
                reader.read_to_string(&mut text).unwrap();
                waitpid(child, None).unwrap();
                text
            }
        }
    }

    fn levels() -> String {
        in_child(|| format!("{:?}", probe()))
    }

    #[test]
    fn a_machine_without_user_namespaces_says_what_to_check() {
        if levels().contains("levels: []") {
            eprintln!("skipped: the sandbox of this test needs user namespaces");
            return;
        }
        // In a sandbox, a further one is refused.
        let inside = in_child(|| {
            let basic = Sandbox { level: SandboxLevel::Basic, network: None };
            let view = View { directory: "/usr".into(), ..View::default() };
            let entered = unshare(&basic).and_then(|()| {
                // SAFETY: this process has one thread.
                match unsafe { fork() } {
                    Ok(ForkResult::Parent { child }) => {
                        waitpid(child, None).ok();
                        // SAFETY: as above; the child has written the result.
                        unsafe { libc::_exit(0) }
                    }
                    Ok(ForkResult::Child) => enter(&basic, &view),
                    Err(error) => panic!("{error}"),
                }
            });
            entered.map_or_else(|error| error.to_string(), |()| format!("{:?}", probe()))
        });
        assert!(inside.starts_with("Probed { levels: []"), "{inside}");
        assert!(inside.contains("user.max_user_namespaces"), "{inside}");
    }

    #[test]
    fn hidden_paths_are_covered_wherever_they_are() {
        for level in [SandboxLevel::Basic, SandboxLevel::Strict] {
            let seen = in_child(|| {
                let view = View {
                    directory: "/usr/share".into(),
                    hidden: vec!["/usr".into(), "/etc/services".into()],
                    ..View::default()
                };
                let sandbox = Sandbox { level, network: None };
                let entered = unshare(&sandbox).and_then(|()| {
                    // SAFETY: this process has one thread.
                    match unsafe { fork() } {
                        Ok(ForkResult::Child) => enter(&sandbox, &view),
                        parent => {
                            waitpid(nix::unistd::Pid::from_raw(-1), None).ok();
                            // SAFETY: as above; the child has written the result.
                            unsafe { libc::_exit(i32::from(parent.is_err())) }
                        }
                    }
                });
                let names = std::fs::read_dir("/usr").into_iter().flatten().flatten();
                let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
                let text = std::fs::read_to_string("/etc/services");
                format!("{:?} {names:?} {text:?}", entered.map_err(|error| error.to_string()))
            });
            let expected = r#"Ok(()) ["share"] Ok("")"#;
            assert!(seen == expected || levels().contains("levels: []"), "{level}: {seen}");
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let result = in_child(|| {
            let view = View { directory: "/no/such".into(), ..View::default() };
            let basic = Sandbox { level: SandboxLevel::Basic, network: None };
            let result = unshare(&basic).and_then(|()| enter(&basic, &view));
            result.map_or_else(|error| error.to_string(), |()| "entered".into())
        });
        let expected =
            "cannot create the sandbox: cannot show `/no/such`: No such file or directory (os error 2)";
        assert!(result == expected || levels().contains("levels: []"), "{result}");
    }
}
