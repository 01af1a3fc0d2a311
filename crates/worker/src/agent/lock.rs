//! Lock that allows one agent per folder: two agents would keep taking the supervisor's connection from each other.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::AgentError;
use crate::config::AgentConfig;
use crate::layout::Layout;

/// Delay between attempts to take the lock.
const RETRY: Duration = Duration::from_millis(50);

/// Holds the lock of the folder until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Locks the folder. Waits up to `lock_patience` for another agent to exit, for example one that is being replaced.
pub(super) async fn take(config: &AgentConfig) -> Result<Lock, AgentError> {
    let failed = |source| AgentError::Lock { dir: config.dir.clone(), source };
    let deadline = tokio::time::Instant::now() + Duration::from_millis(config.lock_timeout.as_millis());
    let mut file = open(config).map_err(failed)?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(RETRY).await;
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let process = owner(&mut file).unwrap_or_else(|| "unknown".into());
                return Err(AgentError::Taken { dir: config.dir.clone(), process });
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
    // Tells users the process id of the agent; on a full disk the file stays empty.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).ok();
    Ok(Lock { _file: file })
}

fn open(config: &AgentConfig) -> io::Result<File> {
    fs::create_dir_all(&config.dir)?;
    let path = Layout::new(&config.dir).agent_lock();
    File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
}

fn owner(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
