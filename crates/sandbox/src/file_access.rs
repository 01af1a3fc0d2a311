//! Access to files, checked by the kernel against a list (Landlock).
//!
//! The view already shows little and most of it read-only. The list holds even if a way around the mounts is found: nothing
//! outside the writable directories can be written.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::error::{SandboxError, Step as _};
use crate::view::View;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

const STEP: &str = "restrict its access to files (Landlock)";

/// What the kernel must support (Linux 5.13), and what is used if it does.
const REQUIRED: ABI = ABI::V1;
const WANTED: ABI = ABI::V6;

/// Directories that are private to the sandbox.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/dev"];

/// Restricts this process and its children.
pub(crate) fn restrict(view: &View) -> Result<(), SandboxError> {
    let writable =
        std::iter::once(view.directory.as_path()).chain(view.writable.iter().map(PathBuf::as_path));
    let status = enforce(writable.chain(PRIVATE.map(Path::new))).map_err(io::Error::other).step(STEP)?;
    if status == RulesetStatus::NotEnforced {
        return Err(SandboxError::new(STEP, io::Error::from_raw_os_error(libc::ENOSYS)));
    }
    Ok(())
}

fn enforce<'a>(writable: impl Iterator<Item = &'a Path>) -> Result<RulesetStatus, AnyError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))?
        // Signals and abstract sockets reach nothing outside.
        .scope(Scope::from_all(WANTED))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, AccessFs::from_read(WANTED)))?;
    for path in writable {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, AccessFs::from_all(WANTED)))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}
