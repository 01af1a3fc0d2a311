//! One agent a folder: two would take the supervisor from each other for ever.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::AgentError;
use crate::config::AgentConfig;
use crate::layout::Layout;

/// Between two tries.
const RETRY: Duration = Duration::from_millis(50);

/// The folder is this agent's for as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Takes the folder. One that is being replaced has a moment to end.
pub(super) async fn take(config: &AgentConfig) -> Result<Lock, AgentError> {
    let failed = |source| AgentError::Lock { dir: config.dir.clone(), source };
    let deadline = tokio::time::Instant::now() + Duration::from_millis(config.lock_patience.as_millis());
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
    // For people who look for the process, and nothing on a full disk.
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
