//! Where benchmarks keep their data, and the server that they measure.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use harness::{Server, belfry, repository};
use tempfile::TempDir;

/// A folder on a real disk, gone with its value. Tasks of other users may look into it.
pub(crate) fn folder() -> anyhow::Result<TempDir> {
    let base =
        std::env::var_os("BELFRY_BENCH_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    fs::create_dir_all(&base)?;
    let folder = tempfile::Builder::new().prefix("belfry-bench-").tempdir_in(base)?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// A server of the release binary, over a fresh store.
pub(crate) async fn server(folder: &Path) -> anyhow::Result<Server> {
    let folder_of_binary = belfry().parent().is_some_and(|f| f.ends_with("release"));
    anyhow::ensure!(
        folder_of_binary,
        "debug builds are not worth measuring: cargo run --release -p belfry-bench"
    );
    Ok(Server::start(&folder.join("data"), &folder.join("server.log"), &[("BELFRY_LOG", "warn")]).await)
}
