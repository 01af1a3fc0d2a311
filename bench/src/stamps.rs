//! Start times recorded by the tasks: each task appends its job's name and the time to a file.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

/// The program that records the time, in the same folder as this program.
const PROGRAM: &str = "belfry-bench-stamp";

/// Returns the wall clock time in microseconds.
pub(crate) fn now_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// A file of start times, and the program that appends to it.
pub(crate) struct Stamps {
    program: PathBuf,
    file: PathBuf,
}

impl Stamps {
    /// Creates both in a folder that every user can access, because tasks may run as another user.
    pub(crate) fn make(folder: &Path) -> anyhow::Result<Self> {
        let (program, file) = (folder.join("stamp"), folder.join("stamps"));
        let built = std::env::current_exe()?.with_file_name(PROGRAM);
        fs::copy(&built, &program).with_context(|| format!("cannot copy `{}`", built.display()))?;
        File::create(&file)?;
        fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        Ok(Self { program, file })
    }

    /// Returns the command of a task; its job's name is in `BELFRY_JOB_NAME`.
    pub(crate) fn command(&self) -> [String; 2] {
        [&self.program, &self.file].map(|path| path.display().to_string())
    }

    pub(crate) fn count(&self) -> anyhow::Result<usize> {
        Ok(fs::read_to_string(&self.file)?.lines().count())
    }

    /// Returns job names with their start times in microseconds of the wall clock.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let text = fs::read_to_string(&self.file)?;
        let stamp = |line: &str| {
            let (name, at) = line.split_once(' ').context("a line consists of a name and a time")?;
            anyhow::Ok((name.to_owned(), at.parse()?))
        };
        text.lines().map(stamp).collect()
    }
}
