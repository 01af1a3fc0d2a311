//! What if: changes of a plan, each in a few words.

use model::{Bytes, Millicores};

use crate::plan::{Plan, Worker};

/// The most workers that a plan is given.
const WORKERS_MAX: usize = 10_000;

/// A change of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum WhatIf {
    /// There are so many workers: the first of those that there are, or more like them in turn.
    Workers(usize),
    /// There is one more.
    AddWorker(Box<Worker>),
    /// This one has so many times as much of everything.
    ScaleWorker {
        /// Its name.
        name: String,
        /// Above 0.
        factor: f64,
    },
    /// This one is not there.
    WithoutWorker(String),
    /// Every run takes so many times as long.
    Slower(f64),
}

/// Why a change cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WhatIfError {
    /// No such worker.
    #[error("there is no worker `{name}`: expected {}", one_of(.known))]
    NoWorker {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// There are no workers to make more of.
    #[error("there are no workers to make {wanted} of: add one first")]
    NothingToCopy {
        /// How many were wanted.
        wanted: usize,
    },
    /// Too many workers.
    #[error("{wanted} workers are too many: expected at most {WORKERS_MAX}")]
    TooMany {
        /// How many were wanted.
        wanted: usize,
    },
    /// A factor that is no number above 0.
    #[error("`{factor}` times is not possible: expected a number above 0")]
    Factor {
        /// What was asked for.
        factor: f64,
    },
}

fn one_of(known: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match (known.len(), known.len().saturating_sub(SHOWN)) {
        (0, _) => "none, for there are no workers".to_owned(),
        (1, _) => shown.join(""),
        (_, 0) => format!("one of {}", shown.join(", ")),
        (_, more) => format!("one of {} or {more} more", shown.join(", ")),
    }
}

impl Plan {
    /// Changes it.
    ///
    /// # Errors
    /// [`WhatIfError`] for what cannot be; nothing is changed then.
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

    /// This name, or with a number behind it that no worker has.
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
