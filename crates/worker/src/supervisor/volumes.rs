//! Volumes of executions: directories of the worker that keep their content.

use std::path::PathBuf;

use model::spec::Volume;
use supervisor::StartFailure;

/// Volumes of an execution, with their paths.
pub(super) type VolumePaths = Vec<(Volume, PathBuf)>;

/// Returns the environment variables with the paths.
pub(super) fn variables(volumes: &[(Volume, PathBuf)]) -> impl Iterator<Item = String> {
    volumes.iter().map(|(volume, path)| format!("{}={}", volume.variable(), path.display()))
}

/// Checks that the directories exist. Blocks while their file systems do not respond.
///
/// # Errors
/// The start failure `volume_missing` for the first one that cannot be used.
pub(super) fn check(volumes: &[(Volume, PathBuf)]) -> Result<(), StartFailure> {
    for (Volume { name }, path) in volumes {
        let reason = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "it is not a directory".to_owned(),
            Err(error) => error.to_string(),
        };
        let detail = format!("cannot use the directory `{}` of volume `{name}`: {reason}", path.display());
        return Err(StartFailure { code: "volume_missing".to_owned(), detail });
    }
    Ok(())
}
