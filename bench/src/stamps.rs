//! When tasks started, as they say themselves: each appends its job's name and the time to a file.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

/// The program that stamps, beside this one.
const PROGRAM: &str = "belfry-bench-stamp";

/// The wall clock, in microseconds.
pub(crate) fn now_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// A file of stamps, and a program that adds to it.
pub(crate) struct Stamps {
    program: PathBuf,
    file: PathBuf,
}

impl Stamps {
    /// Both in a folder that every user can reach, as tasks may run as another.
    pub(crate) fn make(folder: &Path) -> anyhow::Result<Self> {
        let (program, file) = (folder.join("stamp"), folder.join("stamps"));
        let built = std::env::current_exe()?.with_file_name(PROGRAM);
        fs::copy(&built, &program).with_context(|| format!("could not copy `{}`", built.display()))?;
        File::create(&file)?;
        fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        Ok(Self { program, file })
    }

    /// What a task executes; its job's name is in `BELFRY_JOB_NAME`.
    pub(crate) fn command(&self) -> [String; 2] {
        [&self.program, &self.file].map(|path| path.display().to_string())
    }

    pub(crate) fn count(&self) -> anyhow::Result<usize> {
        Ok(fs::read_to_string(&self.file)?.lines().count())
    }

    /// The names of jobs, each with the time in microseconds of the wall clock.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let text = fs::read_to_string(&self.file)?;
        let stamp = |line: &str| {
            let (name, at) = line.split_once(' ').context("a stamp is a name and a time")?;
            anyhow::Ok((name.to_owned(), at.parse()?))
        };
        text.lines().map(stamp).collect()
    }
}
