//! Why a process could not enter its sandbox.

use std::io;

/// A sandbox that could not be created. Nothing of the job was run.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the sandbox: cannot {step}: {source}{hint}", hint = hint(step))]
pub struct SandboxError {
    step: String,
    source: io::Error,
}

impl SandboxError {
    pub(crate) fn new(step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { step: step.into(), source: source.into() }
    }
}

/// Steps whose failure has a usual reason.
pub(crate) const PROC: &str = "create `/proc`";
pub(crate) const NAMESPACES: &str = "create its namespaces";

/// Returns what to check on the machine, for the steps that a machine may forbid.
fn hint(step: &str) -> &'static str {
    if step == PROC {
        return "; a worker that runs in a container needs a container with a complete `/proc`";
    }
    if step != NAMESPACES {
        return "";
    }
    "; check that the kernel allows user namespaces to ordinary users (`user.max_user_namespaces`, `kernel.unprivileged_userns_clone`, `kernel.apparmor_restrict_unprivileged_userns`)"
}

/// Names the step at which a call failed.
pub(crate) trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, SandboxError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, SandboxError> {
        self.map_err(|error| SandboxError::new(step, error))
    }
}
