//! What-if changes of a plan.

use model::{Bytes, Millicores};

use crate::plan::{Plan, Worker};

/// Maximum number of workers in a plan.
const WORKERS_MAX: usize = 10_000;

/// A change of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum WhatIf {
    /// Sets the number of workers: removes the last ones, or adds copies of the workers in turn.
    Workers(usize),
    /// Adds a worker.
    AddWorker(Box<Worker>),
    /// Multiplies the capacity of a worker.
    ScaleWorker {
        /// Worker name.
        name: String,
        /// Factor; above 0.
        factor: f64,
    },
    /// Removes a worker.
    WithoutWorker(String),
    /// Multiplies all run times.
    Slower(f64),
}

/// Why a change cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WhatIfError {
    /// The worker does not exist.
    #[error("worker `{name}` does not exist: {}", expected(.known))]
    NoWorker {
        /// Requested name.
        name: String,
        /// Names of the existing workers.
        known: Vec<String>,
    },
    /// There is no worker to copy.
    #[error("cannot set the number of workers to {wanted}: there is no worker to copy")]
    NothingToCopy {
        /// Requested number of workers.
        wanted: usize,
    },
    /// Too many workers.
    #[error("{wanted} workers are too many: expected at most {WORKERS_MAX}")]
    TooMany {
        /// Requested number of workers.
        wanted: usize,
    },
    /// The factor is not a number above 0.
    #[error("invalid factor `{factor}`: expected a number above 0")]
    Factor {
        /// Requested factor.
        factor: f64,
    },
}

fn expected(known: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match (known.len(), known.len().saturating_sub(SHOWN)) {
        (0, _) => "there are no workers".to_owned(),
        (1, _) => format!("expected {}", shown.join("")),
        (_, 0) => format!("expected one of {}", shown.join(", ")),
        (_, more) => format!("expected one of {} or {more} more", shown.join(", ")),
    }
}

impl Plan {
    /// Applies a what-if change.
    ///
    /// # Errors
    /// [`WhatIfError`] if the change is impossible; the plan stays unchanged then.
    pub fn change(&mut self, what_if: &WhatIf) -> Result<(), WhatIfError> {
        match what_if {
            WhatIf::Workers(wanted) => self.set_workers(*wanted),
            WhatIf::AddWorker(worker) => {
                let mut worker = (**worker).clone();
                worker.name = self.free_name(&worker.name);
                self.workers.push(worker);
                Ok(())
            }
            WhatIf::ScaleWorker { name, factor } => self.scale_worker(name, *factor),
            WhatIf::WithoutWorker(name) => {
                let place = self.place_of(name)?;
                self.workers.remove(place);
                Ok(())
            }
            WhatIf::Slower(factor) => {
                check(*factor)?;
                self.options.slower *= factor;
                Ok(())
            }
        }
    }

    fn set_workers(&mut self, wanted: usize) -> Result<(), WhatIfError> {
        if wanted > WORKERS_MAX {
            return Err(WhatIfError::TooMany { wanted });
        }
        let patterns = self.workers.clone();
        if patterns.is_empty() && wanted > 0 {
            return Err(WhatIfError::NothingToCopy { wanted });
        }
        self.workers.truncate(wanted);
        while self.workers.len() < wanted {
            let like = &patterns[self.workers.len() % patterns.len()];
            let worker = Worker { name: self.free_name(&like.name), ..like.clone() };
            self.workers.push(worker);
        }
        Ok(())
    }

    fn scale_worker(&mut self, name: &str, factor: f64) -> Result<(), WhatIfError> {
        check(factor)?;
        let place = self.place_of(name)?;
        let capacity = &mut self.workers[place].capacity;
        capacity.cpu = Millicores(times(u64::from(capacity.cpu.0), factor).try_into().unwrap_or(u32::MAX));
        capacity.memory = Bytes(times(capacity.memory.0, factor));
        capacity.slots = times(u64::from(capacity.slots), factor).try_into().unwrap_or(u32::MAX);
        capacity.custom.values_mut().for_each(|amount| *amount = times(*amount, factor));
        Ok(())
    }

    fn place_of(&self, name: &str) -> Result<usize, WhatIfError> {
        self.workers.iter().position(|worker| worker.name == name).ok_or_else(|| WhatIfError::NoWorker {
            name: name.to_owned(),
            known: self.workers.iter().map(|worker| worker.name.clone()).collect(),
        })
    }

    /// Returns a name that no worker has: the given name, or the name with a numeric suffix.
    fn free_name(&self, wanted: &str) -> String {
        let is_free = |name: &String| self.workers.iter().all(|worker| worker.name != *name);
        let names = std::iter::once(wanted.to_owned()).chain((2_u32..).map(|n| format!("{wanted}-{n}")));
        names.into_iter().find(is_free).unwrap_or_default()
    }
}

fn check(factor: f64) -> Result<(), WhatIfError> {
    if factor.is_finite() && factor > 0.0 { Ok(()) } else { Err(WhatIfError::Factor { factor }) }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a capacity that was scaled is as exact as its factor"
)]
fn times(amount: u64, factor: f64) -> u64 {
    (amount as f64 * factor).round() as u64
}
